// expect: WW0201@3, WW0210@3, WW0201@4, WW0201@5, WW0201@6, WW0201@7
__device__ half2 reduce_h(half2 v) {
    v = __hadd2(v, __shfl_xor_sync(uint32_t(-1), v, 16));
    v = __hadd2(v, __shfl_xor_sync(uint32_t(-1), v, 8));
    v = __hadd2(v, __shfl_xor_sync(uint32_t(-1), v, 4));
    v = __hadd2(v, __shfl_xor_sync(uint32_t(-1), v, 2));
    v = __hadd2(v, __shfl_xor_sync(uint32_t(-1), v, 1));
    return v;
}
