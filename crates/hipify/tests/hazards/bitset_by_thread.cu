// expect: safe
__global__ void set_flags(const unsigned char *in, unsigned *bits, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && in[i]) atomicOr(bits + (i >> 5), 1u << (i & 31));
}

__device__ bool test_flag(const unsigned *bits, int i) {
    return (bits[i / 32] >> (i % 32)) & 1u;
}
