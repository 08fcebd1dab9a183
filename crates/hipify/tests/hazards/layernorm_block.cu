// expect: WW0207@8, WW0216@10
template <typename T, int THREADS>
__global__ void layernorm(const T *x, T *y, int hidden) {
    __shared__ float warp_sums[THREADS / 32];
    float s = 0;
    for (int i = threadIdx.x; i < hidden; i += THREADS) s += (float)x[blockIdx.x * hidden + i];
    s = warp_reduce_sum(s);
    if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = s;
    __syncthreads();
    if (threadIdx.x < 32) {
        s = threadIdx.x < THREADS / 32 ? warp_sums[threadIdx.x] : 0.f;
        s = warp_reduce_sum(s);
        if (threadIdx.x == 0) warp_sums[0] = s;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < hidden; i += THREADS) y[blockIdx.x * hidden + i] = (T)((float)x[blockIdx.x * hidden + i] - warp_sums[0] / hidden);
}
