// expect: WW0213@13
template <unsigned kBlock>
__global__ void sum_old(const int *in, int *out) {
    extern __shared__ volatile int s[];
    unsigned tid = threadIdx.x;
    s[tid] = in[blockIdx.x * kBlock + tid];
    __syncthreads();
    for (unsigned k = kBlock / 2; k > 32; k >>= 1) {
        if (tid < k) s[tid] += s[tid + k];
        __syncthreads();
    }
    if (tid < 32) {
        s[tid] += s[tid + 32];
        s[tid] += s[tid + 16];
        s[tid] += s[tid + 8];
        s[tid] += s[tid + 4];
        s[tid] += s[tid + 2];
        s[tid] += s[tid + 1];
    }
    if (tid == 0) out[blockIdx.x] = s[0];
}
