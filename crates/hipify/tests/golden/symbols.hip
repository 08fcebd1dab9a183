#include <hip/hip_runtime.h>
__constant__ float coefficients[16];
__global__ void kernel(float *x);
template <typename T, int N> __global__ void wide(T *x);
void upload(const float *host, float *back) {
  void *address;
  hipMemcpyToSymbol(HIP_SYMBOL(coefficients), host, sizeof(float) * 16);
  hipMemcpyFromSymbol(back, HIP_SYMBOL(coefficients), sizeof(float) * 16, 0, hipMemcpyDeviceToHost);
  hipGetSymbolAddress(&address, HIP_SYMBOL(coefficients));
  hipFuncSetCacheConfig(reinterpret_cast<const void*>(kernel), hipFuncCachePreferL1);
  hipFuncSetAttribute(reinterpret_cast<const void*>(wide<float, 2>), hipFuncAttributeMaxDynamicSharedMemorySize, 65536);
  auto pointer = hipFuncGetAttributes;
}
// 12:18 WW0110 warning: arguments of `cudaFuncGetAttributes` differ in HIP and could not be adapted here
