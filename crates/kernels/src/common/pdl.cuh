#pragma once

// Programmatic dependent launch (PDL; `Launch::pdl`): a kernel allows the next one to start, which waits for the previous one to finish
// before it accesses memory that others write. No-ops where PDL is not supported.
__device__ inline void pdl_launch_dependents() {
#if !defined(__AMDGCN__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ inline void pdl_wait() {
#if !defined(__AMDGCN__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// How most kernels begin: their launch latency overlaps with the previous kernel.
__device__ inline void pdl_sync() {
    pdl_launch_dependents();
    pdl_wait();
}
