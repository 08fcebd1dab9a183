// options: keep-excluded call
#include <hip/hip_runtime.h>
__global__ void scale(float *x);
void run(float *x) {
#ifdef NEVER_DEFINED
  scale<<<1, 1>>>(x);
  cudaFree(x);
#else
  hipLaunchKernelGGL(scale, dim3(1), dim3(2), 0, 0, x);
#endif
#if CUDA_VERSION >= 11000
  hipFree(x);
#endif
}
// 11:5 WW0116 warning: HIP does not define `CUDA_VERSION`; this condition evaluates it as 0
