// nvcuda::wmma.
#include <mma.h>
using namespace nvcuda;

template <class T, class LA, class LB, class C> __device__ void multiply(const T *a, const T *b, C *c) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, T, LA> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, T, LB> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, C> fc;
    wmma::fill_fragment(fc, 0);
    wmma::load_matrix_sync(fa, a, 16);
    wmma::load_matrix_sync(fb, b, 16);
    wmma::mma_sync(fc, fa, fb, fc);
    for (int i = 0; i < fc.num_elements; i++) fc.x[i] = fc.x[i] + fc.x[i];
    wmma::store_matrix_sync(c, fc, 16, wmma::mem_row_major);
}
extern "C" __global__ void wmma_half(const __half *a, const __half *b, float *c) {
    multiply<__half, wmma::row_major, wmma::col_major>(a, b, c);
}
extern "C" __global__ void wmma_bf16(const __nv_bfloat16 *a, const __nv_bfloat16 *b, float *c) {
    multiply<__nv_bfloat16, wmma::col_major, wmma::row_major>(a, b, c);
}
extern "C" __global__ void wmma_int8(const signed char *a, const signed char *b, int *c) {
    multiply<signed char, wmma::row_major, wmma::row_major>(a, b, c);
}
