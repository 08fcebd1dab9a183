#include <hip/hip_runtime.h>

hipError_t cudaCheckMine(int line);
void run(CUgreenCtx context) {
  cudaGraphicsD3D9RegisterResource(nullptr, nullptr, 0);
  cudaNotInAnyTable(1);
  cuAlsoUnknown();
  cudaCheckMine(__LINE__);
  hipDeviceSynchronize();
}
// 4:10 WW0101 error: `CUgreenCtx` (CUDA driver API) has no HIP equivalent
// 5:3 WW0101 error: `cudaGraphicsD3D9RegisterResource` (CUDA runtime API) has no HIP equivalent
// 6:3 WW0100 warning: unknown CUDA name `cudaNotInAnyTable`
// 7:3 WW0100 warning: unknown CUDA name `cuAlsoUnknown`
// 9:3 WW0106 note: CUDA 13.0 removed `cudaThreadSynchronize`
