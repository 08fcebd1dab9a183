// expect: safe
__global__ void unpack(const unsigned *bits, float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        unsigned word = bits[i >> 5];
        x[i] = (word >> (i & 31)) & 1u ? 1.f : 0.f;
    }
}
