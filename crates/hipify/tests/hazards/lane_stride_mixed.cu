// expect: WW0218@5, WW0207@7, WW0211@7, WW0207@8
__global__ void gather_rows(const int *idx, const float *x, float *y, int cols) {
    const int lane = threadIdx.x % warpSize;
    const int warp = threadIdx.x / warpSize;
    for (int c = lane; c < cols; c += 32)
        y[warp * cols + c] = x[idx[warp] * cols + c];
    float last = __shfl_sync(~0ull, y[warp * 32 + lane], 31);
    if (lane == 31) y[0] = last;
}
