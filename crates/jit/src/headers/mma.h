// nvcuda::wmma for AMD: every shape of CUDA's but those of less than a byte.
//
// A fragment is spread over 32 lanes, as a CUDA warp has them: a wave of 64 lanes is two warps, each with tiles of its own, so kernels
// that count warps of 32 compute what they do on NVIDIA. Products are plain multiply-adds on values that travel by shuffles;
// the matrix cores work on whole waves and are not used here.
//
// The elements of a and of an accumulator are counted by rows, those of b by columns, and lane l holds the l-th run of them. As in
// CUDA, programs may rely on num_elements and on equal layouts of equal fragments only.
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
namespace precision {
struct tf32 {};
} // namespace precision
// A float with the bits that tf32 has, rounded to nearest and away from zero between two.
__WW_BOTH float __float_to_tf32(float value) {
    unsigned int bits = __builtin_bit_cast(unsigned int, value);
    return (bits & 0x7f800000u) == 0x7f800000u ? value : __builtin_bit_cast(float, (bits + 0x1000u) & 0xffffe000u);
}

namespace __detail {
template <class T> struct element { typedef T type; };
template <> struct element<precision::tf32> { typedef float type; };
template <class Use, int m, int n, int k> struct shape;
// `along`: how many elements a run's direction has; `across`: how many such lines there are.
template <int m, int n, int k> struct shape<matrix_a, m, n, k> { enum { along = k, across = m }; };
template <int m, int n, int k> struct shape<matrix_b, m, n, k> { enum { along = k, across = n }; };
template <int m, int n, int k> struct shape<accumulator, m, n, k> { enum { along = n, across = m }; };
template <int m, int n, int k> struct known {
    static const bool value = (k == 16 && ((m == 16 && n == 16) || (m == 32 && n == 8) || (m == 8 && n == 32))) ||
                              (m == 16 && n == 16 && k == 8) || (m == 8 && n == 8 && k == 4);
};
} // namespace __detail

template <class Use, int m, int n, int k, class T, class Layout = void> struct fragment {
    static_assert(__detail::known<m, n, k>::value, "on AMD, tiles are 16x16x16, 32x8x16, 8x32x16, 16x16x8 (tf32) or 8x8x4 (double)");
    typedef typename __detail::element<T>::type element_type;
    typedef element_type storage_element_type;
    typedef __detail::shape<Use, m, n, k> __shape;
    enum { num_elements = (int)__shape::along * (int)__shape::across / 32, num_storage_elements = num_elements };
    element_type x[num_elements];
};

namespace __detail {
__WW_DEVICE int warp_lane() { return (int)(__lane_id() & 31); }
// Where element i of this lane lies in memory: `runs` if a line's elements follow each other there.
template <class F> __WW_DEVICE size_t place(int i, unsigned int leading, bool runs) {
    int index = warp_lane() * F::num_elements + i;
    unsigned int line = (unsigned int)(index / F::__shape::along), at = (unsigned int)(index % F::__shape::along);
    return runs ? (size_t)line * leading + at : (size_t)at * leading + line;
}
template <class T> __WW_DEVICE float widen(T value) { return (float)value; }
__WW_DEVICE double widen(double value) { return value; }
__WW_DEVICE int widen(signed char value) { return value; }
__WW_DEVICE int widen(unsigned char value) { return value; }
template <class T> __WW_DEVICE T add(T sum, T start, bool) { return start + sum; }
__WW_DEVICE int add(int sum, int start, bool saturate) {
    long long whole = (long long)sum + start;
    if (saturate) whole = whole > 0x7fffffffll ? 0x7fffffffll : whole < -0x80000000ll ? -0x80000000ll : whole;
    return (int)whole;
}
} // namespace __detail

template <class Use, int m, int n, int k, class T, class L, class V>
__WW_DEVICE void fill_fragment(fragment<Use, m, n, k, T, L> &f, const V &value) {
#pragma unroll
    for (int i = 0; i < f.num_elements; i++) f.x[i] = (typename fragment<Use, m, n, k, T, L>::element_type)value;
}
template <int m, int n, int k, class T, class L>
__WW_DEVICE void load_matrix_sync(fragment<matrix_a, m, n, k, T, L> &f, const typename __detail::element<T>::type *from,
                                  unsigned int leading) {
    typedef fragment<matrix_a, m, n, k, T, L> F;
#pragma unroll
    for (int i = 0; i < F::num_elements; i++) f.x[i] = from[__detail::place<F>(i, leading, __warpwave::is_same<L, row_major>::value)];
}
template <int m, int n, int k, class T, class L>
__WW_DEVICE void load_matrix_sync(fragment<matrix_b, m, n, k, T, L> &f, const typename __detail::element<T>::type *from,
                                  unsigned int leading) {
    typedef fragment<matrix_b, m, n, k, T, L> F;
#pragma unroll
    for (int i = 0; i < F::num_elements; i++) f.x[i] = from[__detail::place<F>(i, leading, __warpwave::is_same<L, col_major>::value)];
}
template <int m, int n, int k, class T>
__WW_DEVICE void load_matrix_sync(fragment<accumulator, m, n, k, T> &f, const T *from, unsigned int leading, layout_t layout) {
    typedef fragment<accumulator, m, n, k, T> F;
#pragma unroll
    for (int i = 0; i < F::num_elements; i++) f.x[i] = from[__detail::place<F>(i, leading, layout == mem_row_major)];
}
template <int m, int n, int k, class T>
__WW_DEVICE void store_matrix_sync(T *to, const fragment<accumulator, m, n, k, T> &f, unsigned int leading, layout_t layout) {
    typedef fragment<accumulator, m, n, k, T> F;
#pragma unroll
    for (int i = 0; i < F::num_elements; i++) to[__detail::place<F>(i, leading, layout == mem_row_major)] = f.x[i];
}
// d = a b + c. All 32 lanes take part. A lane's elements of the accumulator lie in one row.
template <int m, int n, int k, class D, class T, class LA, class LB, class C>
__WW_DEVICE void mma_sync(fragment<accumulator, m, n, k, D> &d, const fragment<matrix_a, m, n, k, T, LA> &a,
                          const fragment<matrix_b, m, n, k, T, LB> &b, const fragment<accumulator, m, n, k, C> &c, bool saturate = false) {
    typedef decltype(__detail::widen(a.x[0])) Wide;
    const int in_a = fragment<matrix_a, m, n, k, T, LA>::num_elements, in_b = fragment<matrix_b, m, n, k, T, LB>::num_elements;
    const int in_c = fragment<accumulator, m, n, k, C>::num_elements;
    static_assert(k % in_a == 0 && k % in_b == 0 && n % in_c == 0, "a lane's elements lie in one line");
    int row = __detail::warp_lane() * in_c / n, column = __detail::warp_lane() * in_c % n;
    Wide line[k], sum[in_c];
#pragma unroll
    for (int i = 0; i < k; i++) line[i] = __detail::widen(__warpwave::shuffle(a.x[i % in_a], row * (k / in_a) + i / in_a, 32));
#pragma unroll
    for (int j = 0; j < in_c; j++) {
        sum[j] = 0;
#pragma unroll
        for (int i = 0; i < k; i++)
            sum[j] += line[i] * __detail::widen(__warpwave::shuffle(b.x[i % in_b], (column + j) * (k / in_b) + i / in_b, 32));
    }
#pragma unroll
    for (int j = 0; j < in_c; j++) d.x[j] = (D)__detail::add(sum[j], (Wide)c.x[j], saturate);
}
} // namespace wmma
} // namespace nvcuda
