// Kernels that start early (`Launch::early`): one lets the next start, and that waits for the first's end before it touches what others
// write. Where there is no such thing it starts in its turn.
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
// How most begin: what a start costs is then behind them when their turn comes.
__device__ inline void take_turn() {
    let_next_start();
    wait_for_last();
}
