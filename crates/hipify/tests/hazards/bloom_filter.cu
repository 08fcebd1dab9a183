// expect: safe
__device__ unsigned hash(unsigned x) {
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    return x;
}

__global__ void insert(const unsigned *keys, unsigned *filter, unsigned words, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned h = hash(keys[i]);
    atomicOr(&filter[(h >> 5) % words], 1u << (h & 31));
    unsigned k = h * 2654435761u;
    filter[k / 32 % words] |= 1u << (k % 32);
}
