// Two kernels of which the second starts early (`Launch::early`): the first lets it, and the second waits for the first's end before it
// touches memory. Where there is no such thing it starts in its turn.
__device__ inline void let_next_start() {
#if !defined(__AMDGCN__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ inline void wait_for_last() {
#if !defined(__AMDGCN__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

