// expect: WW0207@4, WW0210@8
#define QK8 32
__global__ void q8_rows(const signed char *q, const float *d, const float *y, float *out, int cols) {
    const int lane = threadIdx.x & 31;
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    float acc = 0;
    for (int b = 0; b < cols / 32; ++b) acc += d[row * (cols / QK8) + b] * q[row * cols + b * 32 + lane] * y[b * 32 + lane];
    for (int m = 16; m > 0; m >>= 1) acc += __shfl_down_sync(~0ull, acc, m);
    if (lane == 0) out[row] = acc;
}
