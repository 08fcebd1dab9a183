// options: call
#include <cuda_runtime.h>
__global__ void fill(float *x, float v);
void run(float *x, dim3 grid, cudaStream_t stream) {
  fill<<<1, 256>>>(x, 1.0f);
  fill <<< grid, dim3(16, 16), 1024 >>> (x, 2.0f);
  fill<<<grid, 256, 0, stream>>>(x, 3.0f);
}
