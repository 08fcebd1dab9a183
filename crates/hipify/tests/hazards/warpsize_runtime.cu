// expect: safe
__global__ void k(int *out, int n) {
    extern __shared__ int s[];
    const int ws = warpSize;
    for (int i = threadIdx.x; i < n && i < warpSize; i += ws) out[i] = s[i / warpSize];
    s[threadIdx.x / warpSize] = n < warpSize ? 1 : 0;
    out[threadIdx.x % warpSize] = s[warpSize - 1];
}
