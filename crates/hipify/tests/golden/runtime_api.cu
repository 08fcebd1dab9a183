#include <cuda_runtime.h>
#include <stdio.h>

int main() {
  int count = 0;
  cudaGetDeviceCount(&count);
  cudaDeviceProp properties;
  cudaGetDeviceProperties(&properties, 0);
  float *data, *host;
  cudaMalloc(&data, 1024 * sizeof(float));
  cudaMallocHost(&host, 1024 * sizeof(float));
  cudaMemcpy(data, host, 1024 * sizeof(float), cudaMemcpyHostToDevice);
  cudaMemset(data, 0, 1024 * sizeof(float));
  cudaFreeHost(host);
  cudaFree(data);
  return cudaDeviceSynchronize() == cudaSuccess ? 0 : 1;
}
