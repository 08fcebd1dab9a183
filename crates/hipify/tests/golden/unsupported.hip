#include <hip/hip_runtime.h>

hipError_t cudaCheckMine(int line);
void run(CUgreenCtx context) {
  cudaGraphicsD3D9RegisterResource(nullptr, nullptr, 0);
  cudaNotInAnyTable(1);
  cuAlsoUnknown();
  cudaCheckMine(__LINE__);
  hipDeviceSynchronize();
}
// 4:10 WW0101 error: `CUgreenCtx` (CUDA driver API) has no counterpart in HIP
// 5:3 WW0101 error: `cudaGraphicsD3D9RegisterResource` (CUDA runtime API) has no counterpart in HIP
// 6:3 WW0100 warning: `cudaNotInAnyTable` looks like a name of CUDA's and is in no table
// 7:3 WW0100 warning: `cuAlsoUnknown` looks like a name of CUDA's and is in no table
// 9:3 WW0105 note: CUDA 10.0 deprecated `cudaThreadSynchronize`
