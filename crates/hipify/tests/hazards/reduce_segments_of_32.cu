// expect: safe
// Every shuffle names its width, so a wave of 64 works as two segments of 32.
__global__ void row_max(const float *x, float *y, int cols) {
    const int lane = threadIdx.x & 31;
    const int row = blockIdx.x * (blockDim.x / 32) + (threadIdx.x >> 5);
    float best = -1e30f;
    for (int c = lane; c < cols; c += 32)
        best = fmaxf(best, x[row * cols + c]);
    for (int o = 16; o > 0; o /= 2)
        best = fmaxf(best, __shfl_xor_sync(0xffffffffffffffffull, best, o, 32));
    if (lane == 0) y[row] = best;
}
