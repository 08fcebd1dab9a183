// expect: safe
__constant__ unsigned char order[32] = {0, 16, 8, 24, 4, 20, 12, 28, 2, 18, 10, 26, 6, 22, 14, 30,
                                        1, 17, 9, 25, 5, 21, 13, 29, 3, 19, 11, 27, 7, 23, 15, 31};
__global__ void permute(const float *x, float *y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int block = i / 32;
    const int inner = i % 32;
    if (i < n) y[block * 32 + order[inner]] = x[i];
}
