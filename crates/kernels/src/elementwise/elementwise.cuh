// Elementwise kernels over any layout.
//
// An operation F has ARITY inputs of types A, B and C, a result of type R, and at() for one element; with PAIRS it has value(), which is
// not rounded yet. `contiguous` processes contiguous operands, UNROLL vectors of 16 bytes (of the widest operand) at a time; `rows` rows of
// vectors with strides; `scalar` any layout.

#pragma once

#include "common/types.cuh"
#include "common/pack.cuh"
#include "common/pdl.cuh"
#include "common/dims.cuh"

// With many blocks each would pay for the synchronization: only small launches use PDL.
#if !defined(PDL)
#define PDL 0
#endif

// Scalar arguments, as floats and as integers.
struct Scalars { f64 x, y; i64 i, j; };

template <class F> __host__ __device__ constexpr int width() {
    return 16 / max_of(max_of(sizeof(typename F::A), sizeof(typename F::B)), max_of(sizeof(typename F::C), sizeof(typename F::R)));
}

template <class F> __host__ __device__ constexpr auto has_pairs(int) -> decltype(F::PAIRS) { return F::PAIRS; }
template <class F> __host__ __device__ constexpr bool has_pairs(...) { return false; }

// The inputs of WIDTH elements.
template <class F, int WIDTH> struct Operands {
    Pack<typename F::A, WIDTH> a;
    Pack<typename F::B, WIDTH> b;
    Pack<typename F::C, WIDTH> c;

    __device__ inline void load(const typename F::A *from_a, const typename F::B *from_b, const typename F::C *from_c, i64 at) {
        if constexpr (F::ARITY > 0) a = get<typename F::A, WIDTH>(from_a + at);
        if constexpr (F::ARITY > 1) b = get<typename F::B, WIDTH>(from_b + at);
        if constexpr (F::ARITY > 2) c = get<typename F::C, WIDTH>(from_c + at);
    }
    __device__ inline void store(const F &f, typename F::R *to) const {
        Pack<typename F::R, WIDTH> r;
        if constexpr (has_pairs<F>(0) && WIDTH > 1) {
#pragma unroll
            for (int k = 0; k < WIDTH; k += 2) narrow_pair(r.at + k, f.value(a.at[k]), f.value(a.at[k + 1]));
        } else {
#pragma unroll
            for (int k = 0; k < WIDTH; ++k) r.at[k] = f.at(a.at[k], b.at[k], c.at[k]);
        }
        put<typename F::R, WIDTH>(to, r);
    }
};

// `head` elements precede the first aligned one.
template <class F> __device__ inline void vectors(typename F::R *out, const typename F::A *a, const typename F::B *b, const typename F::C *c,
                                                  Scalars scalars, u64 n, u64 head) {
    constexpr int WIDTH = width<F>();
    if (PDL) pdl_sync();
    const F f(scalars);
    const u64 packs = (n - head) / WIDTH, tile = (u64)blockDim.x * UNROLL;
    out += head;
    if constexpr (F::ARITY > 0) a += head;
    if constexpr (F::ARITY > 1) b += head;
    if constexpr (F::ARITY > 2) c += head;
    for (u64 first = blockIdx.x * tile; first < packs; first += gridDim.x * tile) {
        const u64 at = first + threadIdx.x;
        if (UNROLL > 1 && first + tile <= packs) {
            // All loads are issued before the first result is stored.
            Operands<F, WIDTH> operands[UNROLL];
#pragma unroll
            for (int k = 0; k < UNROLL; ++k) operands[k].load(a, b, c, (at + k * blockDim.x) * WIDTH);
#pragma unroll
            for (int k = 0; k < UNROLL; ++k) operands[k].store(f, out + (at + k * blockDim.x) * WIDTH);
            continue;
        }
        const u64 end = first + tile < packs ? first + tile : packs;
#pragma unroll 1
        for (u64 pack = at; pack < end; pack += blockDim.x) {
            Operands<F, WIDTH> operands;
            operands.load(a, b, c, pack * WIDTH);
            operands.store(f, out + pack * WIDTH);
        }
    }
    // The remaining elements at both ends, fewer than two vectors, are the first block's.
    const u64 lane = threadIdx.x;
    if (blockIdx.x == 0 && lane < n - packs * WIDTH) {
        const i64 at = (i64)(lane < head ? lane : lane + packs * WIDTH) - (i64)head;
        Operands<F, 1> operands;
        operands.load(a, b, c, at);
        operands.store(f, out + at);
    }
}

template <class T, int WIDTH> __device__ inline Pack<T, WIDTH> get_row(const T *at, bool repeated) {
    if (WIDTH == 1 || !repeated) return get<T, WIDTH>(at);
    Pack<T, WIDTH> pack;
    const T one = *at;
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) pack.at[k] = one;
    return pack;
}

template <class F, class Index, int WIDTH>
__device__ inline void strided(typename F::R *out, const typename F::A *a, const typename F::B *b, const typename F::C *c, Scalars scalars,
                               const Dims &dims) {
    if (PDL) pdl_sync();
    const F f(scalars);
    const Index n = (Index)dims.n, step = (Index)gridDim.x * blockDim.x;
    for (Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        Index rest = i, at[4] = {0, 0, 0, 0};
        // Not unrolled: all shapes and strides at once would not fit AMD's scalar registers.
#pragma unroll 1
        for (int d = 0; d < dims.rank; ++d) {
            Index position = rest;
            if (d + 1 < dims.rank) {
                const Index outer = divide<Index>(rest, dims, d);
                position = rest - outer * (Index)dims.shape[d];
                rest = outer;
            }
#pragma unroll
            for (int k = 0; k <= F::ARITY; ++k) at[k] += position * (Index)dims.strides[k][d];
        }
        Operands<F, WIDTH> operands;
        if constexpr (F::ARITY > 0) operands.a = get_row<typename F::A, WIDTH>(a + at[1], dims.strides[1][0] == 0);
        if constexpr (F::ARITY > 1) operands.b = get_row<typename F::B, WIDTH>(b + at[2], dims.strides[2][0] == 0);
        if constexpr (F::ARITY > 2) operands.c = get_row<typename F::C, WIDTH>(c + at[3], dims.strides[3][0] == 0);
        operands.store(f, out + at[0]);
    }
}

// The kernels of an operation: NAME_contiguous, NAME_rows, NAME_scalar, and NAME_scalar64 with 64-bit indices.
#define OPERANDS(F) F::R *out, const F::A *a, const F::B *b, const F::C *c, Scalars scalars
// With two variants of an operation, the scalar arguments select one.
#define KERNELS(F) KERNELS_OF_TWO(F, F, true)
#define KERNELS_OF_TWO(F, G, FIRST)                                                                                                \
    extern "C" __global__ void KERNEL_NAME(NAME, _contiguous)(OPERANDS(F), u64 n, u64 head) {                                      \
        if (FIRST) vectors<F>(out, a, b, c, scalars, n, head);                                                                     \
        else vectors<G>(out, a, b, c, scalars, n, head);                                                                           \
    }                                                                                                                              \
    extern "C" __global__ void KERNEL_NAME(NAME, _rows)(OPERANDS(F), Dims dims) {                                                  \
        if (FIRST) strided<F, u32, width<F>()>(out, a, b, c, scalars, dims);                                                       \
        else strided<G, u32, width<G>()>(out, a, b, c, scalars, dims);                                                             \
    }                                                                                                                              \
    extern "C" __global__ void KERNEL_NAME(NAME, _scalar)(OPERANDS(F), Dims dims) {                                                \
        if (FIRST) strided<F, u32, 1>(out, a, b, c, scalars, dims);                                                                \
        else strided<G, u32, 1>(out, a, b, c, scalars, dims);                                                                      \
    }                                                                                                                              \
    extern "C" __global__ void KERNEL_NAME(NAME, _scalar64)(OPERANDS(F), Dims dims) {                                              \
        if (FIRST) strided<F, u64, 1>(out, a, b, c, scalars, dims);                                                                \
        else strided<G, u64, 1>(out, a, b, c, scalars, dims);                                                                      \
    }
