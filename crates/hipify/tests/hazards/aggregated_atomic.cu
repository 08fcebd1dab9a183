// expect: WW0204@4, WW0204@5, WW0214@7, WW0204@8
__device__ int add_one(int *counter) {
    auto active = __activemask();
    int leader = __ffs(active) - 1;
    int change = __popc(active);
    unsigned lane_lt;
    asm("mov.u32 %0, %%lanemask_lt;" : "=r"(lane_lt));
    int rank = __popc(active & lane_lt);
    int base;
    if (rank == 0) base = atomicAdd(counter, change);
    base = __shfl_sync(active, base, leader);
    return base + rank;
}
