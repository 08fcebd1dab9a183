// expect: WW0208@3
#include <mma.h>
constexpr int kWarpSize = 32;
constexpr int kTile = 16;

__global__ void tiles(const half *a, const half *b, float *c, int n) {
    int warp = threadIdx.x / kWarpSize;
    nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> acc;
    nvcuda::wmma::fill_fragment(acc, 0.f);
    nvcuda::wmma::store_matrix_sync(c + warp * kTile * n, acc, n, nvcuda::wmma::mem_row_major);
}
