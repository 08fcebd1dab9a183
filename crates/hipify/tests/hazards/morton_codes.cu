// expect: safe
__device__ unsigned spread(unsigned x) {
    x = (x | (x << 16)) & 0x030000ff;
    x = (x | (x << 8)) & 0x0300f00f;
    return (x | (x << 4)) & 0x030c30c3;
}
__global__ void codes(const float3 *p, unsigned *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = spread((unsigned)p[i].x & 31) | spread((unsigned)p[i].y & 31) << 1;
}
