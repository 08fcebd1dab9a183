// expect: WW0207@4, WW0210@6, WW0201@6
template <class F> __global__ void for_each(F f, int n) {
    const unsigned tid = blockDim.x * blockIdx.x + threadIdx.x;
    const unsigned warp_in_grid = tid >> 5u;
    auto combine = [&](float x) {
        for (unsigned m = 16u; m; m >>= 1) x += __shfl_xor_sync(0xffffffff, x, m);
        return x;
    };
    if (tid < n) f(warp_in_grid, combine(1.0f));
}
