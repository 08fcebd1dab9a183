#include <hip/hip_runtime.h>

#include "hip/hip_fp16.h"
#include <cuda_bf16.h>
#include <hiprand/hiprand_kernel.h>


#include "my_cuda.h"
#include <vector>
// 4:10 WW0112 warning: header `cuda_bf16.h` has no known HIP equivalent
