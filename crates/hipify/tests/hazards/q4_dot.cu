// expect: safe
#define QK4 32
typedef struct { float d; unsigned char qs[QK4 / 2]; } block_q4;

__global__ void q4_dot(const block_q4 *x, const float *y, float *out, int n) {
    int ib = blockIdx.x * blockDim.x + threadIdx.x;
    float acc = 0;
    if (ib < n / 32) {
        for (int j = 0; j < 16; ++j) {
            acc += (x[ib].qs[j] & 0xf) * y[ib * 32 + j];
            acc += (x[ib].qs[j] >> 4) * y[ib * 32 + j + 16];
        }
        out[ib] = acc * x[ib].d;
    }
}
