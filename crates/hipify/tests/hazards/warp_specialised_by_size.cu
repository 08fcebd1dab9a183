// expect: safe
__global__ void pipeline(const float *x, float *y, int n) {
    const int wave = threadIdx.x / warpSize;
    const int lane = threadIdx.x - wave * warpSize;
    __shared__ float stage[2][1024];
    if (wave == 0) {
        for (int i = lane; i < n; i += warpSize) stage[0][i] = x[i];
    }
    __syncthreads();
    const unsigned long long live = __ballot_sync(~0ull, threadIdx.x < n);
    if (live >> lane & 1ull) y[threadIdx.x] = stage[0][threadIdx.x];
}
