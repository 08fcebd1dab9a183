// expect: WW0207@5, WW0207@6, WW0218@9, WW0201@10, WW0210@10, WW0201@11, WW0201@12, WW0201@13, WW0201@14
template <typename T>
__global__ void spmv(const int *ptr, const int *col, const T *val, const T *x, T *y, int rows) {
    const int gid = blockIdx.x * blockDim.x + threadIdx.x;
    const int warp = gid / 32;
    const int lane = gid & 31;
    if (warp >= rows) return;
    T sum = 0;
    for (int j = ptr[warp] + lane; j < ptr[warp + 1]; j += 32) sum += val[j] * x[col[j]];
    sum += __shfl_down_sync(0xffffffffU, sum, 16);
    sum += __shfl_down_sync(0xffffffffU, sum, 8);
    sum += __shfl_down_sync(0xffffffffU, sum, 4);
    sum += __shfl_down_sync(0xffffffffU, sum, 2);
    sum += __shfl_down_sync(0xffffffffU, sum, 1);
    if (lane == 0) y[warp] = sum;
}
