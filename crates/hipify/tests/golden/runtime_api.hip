#include <hip/hip_runtime.h>
#include <stdio.h>

int main() {
  int count = 0;
  hipGetDeviceCount(&count);
  hipDeviceProp_t properties;
  hipGetDeviceProperties(&properties, 0);
  float *data, *host;
  hipMalloc(&data, 1024 * sizeof(float));
  hipHostMalloc(&host, 1024 * sizeof(float), hipHostMallocDefault);
  hipMemcpy(data, host, 1024 * sizeof(float), hipMemcpyHostToDevice);
  hipMemset(data, 0, 1024 * sizeof(float));
  hipHostFree(host);
  hipFree(data);
  return hipDeviceSynchronize() == hipSuccess ? 0 : 1;
}
