// expect: safe
__global__ void matmul(const float *A, const float *B, float *C, int n) {
    __shared__ float As[32][32], Bs[32][32];
    int row = blockIdx.y * 32 + threadIdx.y, col = blockIdx.x * 32 + threadIdx.x;
    float acc = 0;
    for (int t = 0; t < (n + 31) / 32; ++t) {
        As[threadIdx.y][threadIdx.x] = A[row * n + t * 32 + threadIdx.x];
        Bs[threadIdx.y][threadIdx.x] = B[(t * 32 + threadIdx.y) * n + col];
        __syncthreads();
        for (int k = 0; k < 32; ++k) acc += As[threadIdx.y][k] * Bs[k][threadIdx.x];
        __syncthreads();
    }
    C[row * n + col] = acc;
}
