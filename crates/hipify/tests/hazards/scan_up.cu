// expect: WW0210@3, WW0201@4, WW0207@11, WW0207@12, WW0207@14, WW0211@15
__device__ int inclusive(int v, int lane) {
    for (int d = 1; d < 32; d <<= 1) {
        int other = __shfl_up_sync(0xFFFFFFFF, v, d);
        if (lane >= d) v += other;
    }
    return v;
}

__global__ void scan(int *data, int *sums) {
    int lane = threadIdx.x & 0x1f;
    int warp = threadIdx.x / 32;
    int v = inclusive(data[threadIdx.x], lane);
    if (lane == 31) sums[warp] = v;
    int total = __shfl_sync(~0ull, v, 31);
    data[threadIdx.x] = total - v;
}
