// expect: WW0219@20, WW0219@22, WW0219@23
// A host that launches 32 threads beside kernels that count in whole waves.
#define THREADS 32
__global__ void row_sums(const float *x, float *out, int cols) {
    float sum = 0.f;
    for (int c = threadIdx.x; c < cols; c += warpSize) sum += x[blockIdx.x * cols + c];
    for (int d = warpSize / 2; d > 0; d /= 2) sum += __shfl_down_sync(~0ull, sum, d);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}
template <int N> __global__ void rows_of(const float *x, float *out) {
    out[threadIdx.x / warpSize] = x[threadIdx.x % warpSize] * N;
}
__global__ void plain(float *x) {
    x[threadIdx.x] = 0.f;
}
void launch(const float *x, float *out, int rows, int cols, int lanes) {
    const int block = 32;
    dim3 wide(256);
    row_sums<<<rows, lanes>>>(x, out, cols);
    row_sums<<<rows, 32>>>(x, out, cols);
    row_sums<<<rows, wide>>>(x, out, cols);
    row_sums<<<rows, block>>>(x, out, cols);
    rows_of<4><<<dim3(rows, 2), dim3(THREADS, 2)>>>(x, out);
    plain<<<rows, 32>>>(out);
}
