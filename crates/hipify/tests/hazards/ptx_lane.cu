// expect: WW0214@4, WW0214@10
__device__ __forceinline__ unsigned lane_below() {
    unsigned m;
    asm volatile("mov.u32 %0, %%lanemask_lt;" : "=r"(m));
    return m;
}

__device__ __forceinline__ int my_lane() {
    int id;
    asm("mov.u32 %0, %laneid;" : "=r"(id));
    return id;
}
