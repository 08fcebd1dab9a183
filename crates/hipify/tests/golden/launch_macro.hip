// options: call
#include <hip/hip_runtime.h>
template <typename T> __global__ void fill(T *x);
__global__ void scale(float *x);
#define WHOLE(n, x) \
  if (n) { \
    hipLaunchKernelGGL(scale, dim3(n), dim3(64), 0, 0, x); \
  }
#define FRONT fill<float><<<1, 64>>>
#define LAUNCH(kernel, grid, ...) hipLaunchKernelGGL(kernel, dim3(grid), dim3(128), 0, 0, __VA_ARGS__)
void run(float *x) {
  WHOLE(4, x);
  hipLaunchKernelGGL(HIP_KERNEL_NAME(fill<float>), dim3(1), dim3(64), 0, 0, x);
  hipLaunchKernelGGL(scale, dim3(8), dim3(128), 0, 0, x);
  hipLaunchKernelGGL(HIP_KERNEL_NAME(fill<float>), dim3(2), dim3(128), 0, 0, x);
}
