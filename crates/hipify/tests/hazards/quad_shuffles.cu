// expect: safe
// Groups of four lanes: right on any wave.
__device__ float quad_sum(float v) {
    v += __shfl_xor_sync(~0ull, v, 1);
    v += __shfl_xor_sync(~0ull, v, 2);
    return v;
}

__device__ float oct_sum(float v) {
    for (int o = 4; o > 0; o >>= 1) v += __shfl_xor_sync(~0ull, v, o, 8);
    return v;
}
