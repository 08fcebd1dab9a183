// options: call
#include <hip/hip_runtime.h>
__global__ void scale(float *x, int n);
int blocks(int n, int per);
void run(float *x, int n, void (*chosen)(float *, int)) {
  hipLaunchKernelGGL(scale, dim3(blocks(n, 64)), dim3(min(n, 64)), (n < 9 ? 1 : 2) * sizeof(float), 0, x + blocks(1, 2), n);
  hipLaunchKernelGGL(scale, dim3(1), dim3( // one block
          64), 0, 0, x, n);
  hipLaunchKernelGGL((*chosen), dim3(1), dim3(1), 0, 0, x, n);
  hipLaunchKernelGGL(scale, dim3(1), dim3(1), 0, 0, x,
      n);
}
