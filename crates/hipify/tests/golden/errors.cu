#include <cuda_runtime.h>
#include <stdio.h>
// cudaMalloc in a comment stays.
bool ok(cudaError_t status) {
  switch (status) {
    case cudaSuccess: return true;
    case cudaErrorMemoryAllocation: printf("cudaMalloc failed: no memory\n"); return false;
    case cudaErrorInvalidValue: printf("error: cudaErrorInvalidValue"); return false;
    default: printf("%s (circumstances)\n", cudaGetErrorString(cudaPeekAtLastError())); return false;
  }
}
