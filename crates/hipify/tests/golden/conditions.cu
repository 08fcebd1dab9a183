// options: keep-excluded call
#include <cuda_runtime.h>
__global__ void scale(float *x);
void run(float *x) {
#ifdef NEVER_DEFINED
  scale<<<1, 1>>>(x);
  cudaFree(x);
#else
  scale<<<1, 2>>>(x);
#endif
#if CUDA_VERSION >= 11000
  cudaFree(x);
#endif
}
