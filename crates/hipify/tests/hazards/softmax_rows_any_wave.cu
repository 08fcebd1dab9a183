// expect: safe
__inline__ __device__ float wave_max(float val) {
    for (int offset = warpSize >> 1; offset > 0; offset >>= 1)
        val = fmaxf(val, __shfl_xor_sync(0xffffffffffffffffULL, val, offset));
    return val;
}

__global__ void row_max(const float *x, float *y, int cols) {
    const int lane = threadIdx.x & (warpSize - 1);
    const int warp = threadIdx.x / warpSize;
    const int warps = blockDim.x / warpSize;
    const int row = blockIdx.x * warps + warp;
    float m = -1e38f;
    for (int c = lane; c < cols; c += warpSize) m = fmaxf(m, x[row * cols + c]);
    m = wave_max(m);
    if (lane == 0) y[row] = m;
}
