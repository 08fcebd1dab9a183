// options: call
#include <cuda_runtime.h>
__global__ void scale(float *x, int n);
int blocks(int n, int per);
void run(float *x, int n, void (*chosen)(float *, int)) {
  scale<<<blocks(n, 64), min(n, 64), (n < 9 ? 1 : 2) * sizeof(float)>>>(x + blocks(1, 2), n);
  scale<<<1,  // one block
          64>>>(x, n);
  (*chosen)<<<1, 1>>>(x, n);
  scale<<<1, 1>>>(
      x,
      n);
}
