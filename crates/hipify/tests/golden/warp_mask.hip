
#include <hip/hip_runtime.h>
__global__ void reduce(float *x) {
  x[threadIdx.x] += __shfl_down_sync(0xffffffff, x[threadIdx.x], 16);
}
// 2:21 WW0210 warning: unrolled shuffles with offsets up to 16 combine 32 lanes; a wave64 also needs an offset of 32
// 2:38 WW0201 error: 32-bit full mask covers half of a wave64, and HIP requires a 64-bit mask
