// expect: safe
__device__ float sum_lanes(float v) {
    if (warpSize == 64) v += __shfl_xor_sync(~0ull, v, 32);
    v += __shfl_xor_sync(~0ull, v, 16);
    v += __shfl_xor_sync(~0ull, v, 8);
    v += __shfl_xor_sync(~0ull, v, 4);
    v += __shfl_xor_sync(~0ull, v, 2);
    v += __shfl_xor_sync(~0ull, v, 1);
    return v;
}
