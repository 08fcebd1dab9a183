#include <cuda.h>
#include <cuda_runtime.h>
cudaError_t cudaCheckMine(int line);
void run(CUgreenCtx context) {
  cudaGraphicsD3D9RegisterResource(nullptr, nullptr, 0);
  cudaNotInAnyTable(1);
  cuAlsoUnknown();
  cudaCheckMine(__LINE__);
  cudaThreadSynchronize();
}
