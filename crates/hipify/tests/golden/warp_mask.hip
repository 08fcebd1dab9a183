
#include <hip/hip_runtime.h>
__global__ void reduce(float *x) {
  x[threadIdx.x] += __shfl_down_sync(0xffffffff, x[threadIdx.x], 16);
}
// 2:21 WW0210 warning: these steps combine 32 lanes, 16 being the largest; a wave64 needs one of 32 as well
// 2:38 WW0201 error: a mask of 32 ones names half of a wave64, and HIP wants one of 64 bits
