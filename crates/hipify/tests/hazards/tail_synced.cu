// expect: safe
__global__ void sum_tail(const int *in, int *out) {
    __shared__ int s[256];
    unsigned tid = threadIdx.x;
    s[tid] = in[blockIdx.x * 256 + tid];
    __syncthreads();
    if (tid < 128) s[tid] += s[tid + 128];
    __syncthreads();
    if (tid < 64) s[tid] += s[tid + 64];
    __syncthreads();
    if (tid < 32) s[tid] += s[tid + 32];
    __syncthreads();
    if (tid < 16) s[tid] += s[tid + 16];
    __syncthreads();
    if (tid < 8) s[tid] += s[tid + 8];
    __syncthreads();
    if (tid < 4) s[tid] += s[tid + 4];
    __syncthreads();
    if (tid == 0) out[blockIdx.x] = s[0] + s[1] + s[2] + s[3];
}
