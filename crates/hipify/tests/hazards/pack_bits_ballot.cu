// expect: WW0201@4, WW0203@4, WW0207@5, WW0203@5
__global__ void pack(const float *x, unsigned *bits, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned word = __ballot_sync(0xffffffff, i < n && x[i] > 0.f);
    if ((i & 31) == 0 && i < n) bits[i >> 5] = word;
}
