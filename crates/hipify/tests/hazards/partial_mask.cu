// expect: WW0202@4
__device__ int pair_sum(int v) {
    if ((threadIdx.x & 16) == 0)
        v += __shfl_down_sync(0x0000ffff, v, 1);
    return v;
}
