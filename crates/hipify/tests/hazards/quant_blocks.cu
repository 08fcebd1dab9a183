// expect: safe
#define QK 32
struct block_q {
    __half d;
    signed char q[QK];
};

__global__ void dequantize(const block_q *x, float *y, int k) {
    const int i = 2 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= k) return;
    const int ib = i / 32;
    const int iq = i % 32;
    const float d = __half2float(x[ib].d);
    y[i] = d * x[ib].q[iq];
    y[i + 1] = d * x[ib].q[iq + 1];
}
