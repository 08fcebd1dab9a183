// expect: WW0208@2
#define WARP_SIZE 32

template <typename T>
__device__ T reduce_in_warp(T v) {
#pragma unroll
    for (int mask = WARP_SIZE / 2; mask > 0; mask /= 2)
        v += __shfl_xor_sync(~0ull, v, mask, WARP_SIZE);
    return v;
}

__global__ void norms(const float *x, float *y, int n) {
    int lane = threadIdx.x % WARP_SIZE;
    int row = threadIdx.x / WARP_SIZE;
    float s = 0;
    for (int i = lane; i < n; i += WARP_SIZE) s += x[row * n + i] * x[row * n + i];
    s = reduce_in_warp(s);
    if (lane == 0) y[row] = sqrtf(s);
}
