// expect: WW0203@8, WW0204@10, WW0204@11, WW0204@13
template <typename T, typename Counter = unsigned>
struct Queue {
    T *items;
    Counter *end;

    __device__ void push(T item) {
        unsigned active =
            __activemask();
        int leader = __ffs(active) - 1;
        int rank = __popc(active & lanes_below());
        Counter base = 0;
        if (rank == 0) base = atomicAdd(end, __popc(active));
        base = __shfl_sync(active, base, leader);
        items[base + rank] = item;
    }
};
