// expect: WW0206@3, WW0203@7, WW0206@8
__device__ bool everyone(bool p) {
    return __ballot_sync(~0ull, p) == 0xffffffff;
}

__device__ bool whole_warp() {
    unsigned m = __activemask();
    return m == 0xffffffffu;
}
