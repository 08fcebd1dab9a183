// expect: safe
__device__ float exp2i(int e) { return __int_as_float((e + 127) << 23); }
__device__ int top_bits(float x) {
    unsigned u = __float_as_uint(x);
    u = (u & 0x80000000u) ? ~u : (u | 0x80000000u);
    return (u >> 27) & 31;
}
__global__ void buckets(const float *x, int *b, int n) {
    int tid = blockIdx.x * blockDim.x + threadIdx.x;
    if (tid < n) b[tid] = top_bits(x[tid]);
}
