#include <hip/hip_runtime.h>
#include <stdio.h>
// cudaMalloc in a comment stays.
bool ok(hipError_t status) {
  switch (status) {
    case hipSuccess: return true;
    case hipErrorOutOfMemory: printf("hipMalloc failed: no memory\n"); return false;
    case hipErrorInvalidValue: printf("error: hipErrorInvalidValue"); return false;
    default: printf("%s (circumstances)\n", hipGetErrorString(hipPeekAtLastError())); return false;
  }
}
