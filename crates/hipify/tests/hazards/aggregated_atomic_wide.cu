// expect: safe
__device__ int add_one(int *counter) {
    const unsigned long long active = __activemask();
    const int leader = __ffsll(active) - 1;
    const int lane = __lane_id();
    const int rank = __popcll(active & ((1ull << lane) - 1));
    int base;
    if (rank == 0) base = atomicAdd(counter, __popcll(active));
    base = __shfl_sync(active, base, leader);
    return base + rank;
}
