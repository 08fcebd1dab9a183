// expect: WW0210@3, WW0201@4
#define WARP_SUM(v) \
    for (int o_ = 16; o_ > 0; o_ >>= 1) \
        (v) += __shfl_xor_sync(0xffffffff, (v), o_)

__global__ void sums(float *x) {
    float v = x[threadIdx.x];
    WARP_SUM(v);
    x[threadIdx.x] = v;
}
