// expect: safe
__global__ void __launch_bounds__(256) gemm(const float *A, float *C, int lda) {
    __shared__ float tile[64 * 32];
    const int tid = threadIdx.x;
    for (int i = tid; i < 64 * 32; i += 256) {
        int r = i / 32, c = i % 32;
        tile[i] = A[r * lda + c];
    }
    __syncthreads();
    const int tr = tid / 32;
    const int tc = tid & 31;
    float sum = 0;
    for (int k = 0; k < 32; ++k) sum += tile[tr * 32 + k] * tile[k * 32 + tc];
    C[tr * lda + tc] = sum;
}
