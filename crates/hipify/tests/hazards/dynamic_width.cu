// expect: safe
__device__ float group_sum(float v, int width) {
    for (int o = width / 2; o > 0; o /= 2) v += __shfl_xor_sync(~0ull, v, o, width);
    return v;
}
__device__ int next_power(int n) { return 1 << (32 - __clz(n - 1)); }
