// expect: WW0207@6
#include <mma.h>
using namespace nvcuda;

__global__ void matmul(const half *a, const half *b, float *c, int n) {
    const int warp_m = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    const int warp_n = blockIdx.y * blockDim.y + threadIdx.y;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc;
    wmma::fill_fragment(acc, 0.0f);
    for (int k = 0; k < n; k += 16) {
        wmma::load_matrix_sync(fa, a + warp_m * 16 * n + k, n);
        wmma::load_matrix_sync(fb, b + warp_n * 16 * n + k, n);
        wmma::mma_sync(acc, fa, fb, acc);
    }
    wmma::store_matrix_sync(c + warp_m * 16 * n + warp_n * 16, acc, n, wmma::mem_row_major);
}
