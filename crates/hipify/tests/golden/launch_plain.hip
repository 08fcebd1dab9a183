// options: call
#include <hip/hip_runtime.h>
__global__ void fill(float *x, float v);
void run(float *x, dim3 grid, hipStream_t stream) {
  hipLaunchKernelGGL(fill, dim3(1), dim3(256), 0, 0, x, 1.0f);
  hipLaunchKernelGGL(fill, dim3(grid), dim3(16, 16), 1024, 0, x, 2.0f);
  hipLaunchKernelGGL(fill, dim3(grid), dim3(256), 0, stream, x, 3.0f);
}
