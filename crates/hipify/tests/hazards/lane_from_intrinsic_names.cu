// expect: WW0207@3, WW0207@4, WW0211@4, WW0207@5
__global__ void label(int *out) {
    const int laneIdx = threadIdx.x % 32u;
    const int warpIdx = __shfl_sync(~0ull, threadIdx.x / 32, 0);
    out[warpIdx * 32 + laneIdx] = laneIdx;
}
