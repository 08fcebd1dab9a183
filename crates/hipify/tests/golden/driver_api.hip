#include <hip/hip_runtime.h>

hipError_t load(const char *path, hipModule_t *module, hipFunction_t *function) {
  hipDevice_t device;
  hipCtx_t context;
  hipInit(0);
  hipDeviceGet(&device, 0);
  hipCtxCreate(&context, hipDeviceScheduleAuto, device);
  hipDeviceptr_t memory;
  if (hipMalloc(&memory, 4096) != hipSuccess) return hipErrorOutOfMemory;
  hipModuleLoad(module, path);
  int grid = 0, block = 0;
  hipModuleOccupancyMaxPotentialBlockSize(&grid, &block, *function, 0, 0);
  return hipModuleGetFunction(function, *module, "scale");
}
// 8:3 WW0107 note: HIP equivalent `hipCtxCreate` was deprecated in 1.9
// 13:3 WW0111 warning: argument 4 of `cuOccupancyMaxPotentialBlockSize` removed; HIP does not take it
