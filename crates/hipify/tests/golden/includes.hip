#include <hip/hip_runtime.h>

#include "hip/hip_fp16.h"
#include <cuda_bf16.h>
#include <hiprand/hiprand_kernel.h>


#include "my_cuda.h"
#include <vector>
// 4:10 WW0112 warning: `cuda_bf16.h`: no HIP header is known for it
