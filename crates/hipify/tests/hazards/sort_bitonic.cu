// expect: WW0201@5
__device__ int bitonic32(int v, int lane) {
    for (int k = 2; k <= 32; k *= 2)
        for (int j = k / 2; j > 0; j /= 2) {
            int other = __shfl_xor_sync(0xffffffff, v, j);
            bool up = (lane & k) == 0;
            bool low = (lane & j) == 0;
            v = (low == up) ? min(v, other) : max(v, other);
        }
    return v;
}
