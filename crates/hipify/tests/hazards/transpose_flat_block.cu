// expect: safe
__global__ void transpose(const float *in, float *out, int n) {
    __shared__ float tile[32][33];
    const int tx = threadIdx.x % 32;
    const int ty = threadIdx.x / 32;
    for (int r = ty; r < 32; r += 8) tile[r][tx] = in[(blockIdx.y * 32 + r) * n + blockIdx.x * 32 + tx];
    __syncthreads();
    for (int r = ty; r < 32; r += 8) out[(blockIdx.x * 32 + r) * n + blockIdx.y * 32 + tx] = tile[tx][r];
}
