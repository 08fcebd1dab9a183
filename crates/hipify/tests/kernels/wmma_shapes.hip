// nvcuda::wmma: tiles that are not square, tf32 and double.
#include <mma.h>
using namespace nvcuda;

template <int m, int n, int k, class P, class T, class C> __device__ void multiply(const T *a, const T *b, C *c) {
    wmma::fragment<wmma::matrix_a, m, n, k, P, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, m, n, k, P, wmma::col_major> fb;
    wmma::fragment<wmma::accumulator, m, n, k, C> fc;
    wmma::load_matrix_sync(fa, a, k);
    wmma::load_matrix_sync(fb, b, k);
    wmma::load_matrix_sync(fc, c, n, wmma::mem_row_major);
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(c, fc, n, wmma::mem_row_major);
}
extern "C" __global__ void wide(const __half *a, const __half *b, float *c) { multiply<8, 32, 16, __half>(a, b, c); }
extern "C" __global__ void tall(const __nv_bfloat16 *a, const __nv_bfloat16 *b, float *c) { multiply<32, 8, 16, __nv_bfloat16>(a, b, c); }
extern "C" __global__ void bytes(const unsigned char *a, const unsigned char *b, int *c) { multiply<32, 8, 16, unsigned char>(a, b, c); }
extern "C" __global__ void doubles(const double *a, const double *b, double *c) { multiply<8, 8, 4, double>(a, b, c); }
extern "C" __global__ void tf32(const float *a, const float *b, float *c) {
    wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> f;
    wmma::load_matrix_sync(f, a, 8);
    for (int i = 0; i < f.num_elements; i++) f.x[i] = wmma::__float_to_tf32(f.x[i]);
    multiply<16, 16, 8, wmma::precision::tf32>(a, b, c);
    c[0] += f.x[0];
}
