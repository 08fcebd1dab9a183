// nvcuda::wmma for AMD: tiles of 16 x 16 x 16.
//
// A fragment is spread over 32 lanes, as a CUDA warp has them: a wave of 64 lanes is two warps, each with tiles of its own, so kernels
// that count warps of 32 compute what they do on NVIDIA. Products are plain multiply-adds on values that travel by shuffles;
// the matrix cores work on whole waves and are not used here.
//
// Lane l holds of a (rows) and of an accumulator row l/2, columns 8(l%2) to 8(l%2)+7, of b (columns) column l/2, rows 8(l%2) to
// 8(l%2)+7. As in CUDA, programs may rely on num_elements and on equal layouts of equal fragments only.
#pragma once
#ifdef __clang__
#pragma clang system_header
#endif
#include "cuda_bf16.h"
#include "cuda_fp16.h"

namespace nvcuda {
namespace wmma {
struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };

template <class Use, int m, int n, int k, class T, class Layout = void> struct fragment {
    static_assert(m == 16 && n == 16 && k == 16, "on AMD, tiles of nvcuda::wmma are 16 x 16 x 16");
    typedef T element_type;
    typedef T storage_element_type;
    enum { num_elements = 8, num_storage_elements = 8 };
    T x[8];
};

namespace __detail {
__WW_DEVICE unsigned int major() { return (__lane_id() & 31) >> 1; }
__WW_DEVICE unsigned int minor() { return (__lane_id() & 1) * 8; }
// Where element i of this lane lies: `along` if the lane's eight elements follow each other in memory.
__WW_DEVICE unsigned int place(int i, unsigned int leading, bool along) {
    return along ? major() * leading + minor() + i : (minor() + i) * leading + major();
}
template <class T> __WW_DEVICE float widen(T value) { return (float)value; }
__WW_DEVICE int widen(signed char value) { return value; }
__WW_DEVICE int widen(unsigned char value) { return value; }
} // namespace __detail

template <class Use, int m, int n, int k, class T, class L, class V>
__WW_DEVICE void fill_fragment(fragment<Use, m, n, k, T, L> &f, const V &value) {
#pragma unroll
    for (int i = 0; i < 8; i++) f.x[i] = (T)value;
}
template <int m, int n, int k, class T, class L>
__WW_DEVICE void load_matrix_sync(fragment<matrix_a, m, n, k, T, L> &f, const T *from, unsigned int leading) {
#pragma unroll
    for (int i = 0; i < 8; i++) f.x[i] = from[__detail::place(i, leading, __warpwave::is_same<L, row_major>::value)];
}
template <int m, int n, int k, class T, class L>
__WW_DEVICE void load_matrix_sync(fragment<matrix_b, m, n, k, T, L> &f, const T *from, unsigned int leading) {
#pragma unroll
    for (int i = 0; i < 8; i++) f.x[i] = from[__detail::place(i, leading, __warpwave::is_same<L, col_major>::value)];
}
template <int m, int n, int k, class T>
__WW_DEVICE void load_matrix_sync(fragment<accumulator, m, n, k, T> &f, const T *from, unsigned int leading, layout_t layout) {
#pragma unroll
    for (int i = 0; i < 8; i++) f.x[i] = from[__detail::place(i, leading, layout == mem_row_major)];
}
template <int m, int n, int k, class T>
__WW_DEVICE void store_matrix_sync(T *to, const fragment<accumulator, m, n, k, T> &f, unsigned int leading, layout_t layout) {
#pragma unroll
    for (int i = 0; i < 8; i++) to[__detail::place(i, leading, layout == mem_row_major)] = f.x[i];
}
// d = a b + c. All 32 lanes take part.
template <int m, int n, int k, class D, class T, class LA, class LB, class C>
__WW_DEVICE void mma_sync(fragment<accumulator, m, n, k, D> &d, const fragment<matrix_a, m, n, k, T, LA> &a,
                          const fragment<matrix_b, m, n, k, T, LB> &b, const fragment<accumulator, m, n, k, C> &c, bool = false) {
    typedef decltype(__detail::widen(T())) Wide;
    int base = (int)(__lane_id() & 31) & ~1;
    Wide row[16], sum[8];
#pragma unroll
    for (int i = 0; i < 16; i++) row[i] = __detail::widen(__warpwave::shuffle(a.x[i & 7], base + (i >> 3), 32));
#pragma unroll
    for (int j = 0; j < 8; j++) {
        sum[j] = (Wide)c.x[j];
        int column = 2 * (int)(__detail::minor() + j);
#pragma unroll
        for (int i = 0; i < 16; i++) sum[j] += row[i] * __detail::widen(__warpwave::shuffle(b.x[i & 7], column + (i >> 3), 32));
    }
#pragma unroll
    for (int j = 0; j < 8; j++) d.x[j] = (D)sum[j];
}
} // namespace wmma
} // namespace nvcuda
