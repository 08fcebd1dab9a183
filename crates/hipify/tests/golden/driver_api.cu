#include <cuda.h>

CUresult load(const char *path, CUmodule *module, CUfunction *function) {
  CUdevice device;
  CUcontext context;
  cuInit(0);
  cuDeviceGet(&device, 0);
  cuCtxCreate(&context, CU_CTX_SCHED_AUTO, device);
  CUdeviceptr memory;
  if (cuMemAlloc(&memory, 4096) != CUDA_SUCCESS) return CUDA_ERROR_OUT_OF_MEMORY;
  cuModuleLoad(module, path);
  int grid = 0, block = 0;
  cuOccupancyMaxPotentialBlockSize(&grid, &block, *function, nullptr, 0, 0);
  return cuModuleGetFunction(function, *module, "scale");
}
