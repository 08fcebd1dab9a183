#include <cuda_runtime.h>
__constant__ float coefficients[16];
__global__ void kernel(float *x);
template <typename T, int N> __global__ void wide(T *x);
void upload(const float *host, float *back) {
  void *address;
  cudaMemcpyToSymbol(coefficients, host, sizeof(float) * 16);
  cudaMemcpyFromSymbol(back, coefficients, sizeof(float) * 16, 0, cudaMemcpyDeviceToHost);
  cudaGetSymbolAddress(&address, coefficients);
  cudaFuncSetCacheConfig(kernel, cudaFuncCachePreferL1);
  cudaFuncSetAttribute(wide<float, 2>, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536);
  auto pointer = cudaFuncGetAttributes;
}
