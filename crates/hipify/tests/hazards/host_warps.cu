// expect: WW0212@3, WW0212@4
void launch_rows(const float *x, float *y, int rows, int threads) {
    int warps_per_block = threads / 32;
    const int num_warps = (rows + 31) / 32;
    int blocks = (rows + warps_per_block - 1) / warps_per_block;
    row_kernel<<<blocks, threads>>>(x, y, rows, num_warps);
}
