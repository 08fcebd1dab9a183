// Rows processed by a group of threads: row addressing and reductions.
//
// A row is processed by the threads of a block with the same threadIdx.y: blockDim.x of them, a power of two. Blocks have whole warps, and
// all threads take part in every exchange.

#pragma once

#include "common/types.cuh"
#include "common/dims.cuh"
#include "common/pack.cuh"

// Dimensions, innermost first, with the strides of up to three operands.
struct RowDims {
    u64 n;
    u32 rank, padding;
    u64 shape[MAX_DIMS];
    u64 strides[3][MAX_DIMS];
};

__device__ inline u64 quotient(u64 x, u64 by) { return (x | by) >> 32 ? x / by : (u32)x / (u32)by; }

// Computes the offset of element `i` in each operand.
template <int OPERANDS> __device__ inline void place(const RowDims &row_dims, u64 i, u64 (&at)[OPERANDS]) {
#pragma unroll
    for (int k = 0; k < OPERANDS; ++k) at[k] = 0;
#pragma unroll 1
    for (int d = 0; d < row_dims.rank; ++d) {
        u64 here = i;
        if (d + 1 < row_dims.rank) {
            const u64 outer = quotient(i, row_dims.shape[d]);
            here = i - outer * row_dims.shape[d];
            i = outer;
        }
#pragma unroll
        for (int k = 0; k < OPERANDS; ++k) at[k] += here * row_dims.strides[k][d];
    }
}

// Elements from `p` to the next 16-byte boundary.
template <class E> __device__ inline u32 before_aligned(const E *p) { return (u32)(0 - (u64)p) % 16 / sizeof(E); }

// Vectors stay in the words they were loaded in, so that elements take no more registers than in memory until they are used.
template <class E> __device__ inline E of_bits(u32 bits) {
    if constexpr (Traits<E>::INTEGER) {
        return (E)bits;
    } else {
        E element;
        element.bits = bits;
        return element;
    }
}
// Packs two 16-bit elements into a word.
template <class E> __device__ inline u32 pair_of(typename Traits<E>::Math low, typename Traits<E>::Math high) {
    return Narrow<E>::from(low).bits | (u32)Narrow<E>::from(high).bits << 16;
}
#if !defined(__AMDGCN__) && __CUDA_ARCH__ >= 800
template <> __device__ inline u32 pair_of<f16>(f32 low, f32 high) {
    u32 pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
template <> __device__ inline u32 pair_of<bf16>(f32 low, f32 high) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
#endif
template <class E, int N> struct Bundle {
    typedef typename Traits<E>::Math Math;
    static const int WORDS = sizeof(E) * N / 4, EACH = 4 / sizeof(E);
    static const bool NARROW = sizeof(E) < 4 && WORDS > 0;
    typedef typename Access<sizeof(E) * N>::Type Raw;
    union Words {
        Raw raw;
        u32 word[WORDS > 0 ? WORDS : 1];
        Pack<E, N> pack;
        __device__ Words() {}
    };
    Raw raw;

    __device__ inline void load(const E *p) { raw = *(const Raw *)p; }
    __device__ inline void store(E *p) const { store_raw((Raw *)p, raw); }
    __device__ inline void unpack(Math (&x)[N]) const {
        Words words;
        words.raw = raw;
#pragma unroll
        for (int k = 0; k < N; ++k) {
            if constexpr (NARROW) x[k] = widen(of_bits<E>(words.word[k / EACH] >> (k % EACH * 8 * sizeof(E))));
            else x[k] = widen(words.pack.at[k]);
        }
    }
    // For floats.
    __device__ inline void pack(const Math (&x)[N]) {
        Words words;
        if constexpr (NARROW) {
#pragma unroll
            for (int k = 0; k < WORDS; ++k) words.word[k] = pair_of<E>(x[2 * k], x[2 * k + 1]);
        } else {
#pragma unroll
            for (int k = 0; k < N; ++k) words.pack.at[k] = Narrow<E>::from(x[k]);
        }
        raw = words.raw;
    }
};

// Exchanges a value made of 32-bit words with another lane.
template <class S> __device__ inline S shuffle_xor(S value, int mask, int width) {
    union Words {
        S value;
        u32 words[sizeof(S) / 4];
        __device__ Words() {}
    } words;
    words.value = value;
#pragma unroll
    for (int k = 0; k < sizeof(S) / 4; ++k) words.words[k] = __shfl_xor_sync(0xffffffffu, words.words[k], mask, width);
    return words.value;
}

// Reduces over the threads of a row; every thread gets the result. `smem` has an entry per warp and may be reused after the next barrier.
template <class S> __device__ inline S reduce_row(S mine, S *smem) {
    const int width = blockDim.x < warpSize ? blockDim.x : warpSize, warps = blockDim.x / warpSize;
    for (int mask = width / 2; mask > 0; mask /= 2) mine.merge(shuffle_xor(mine, mask, width));
    if (warps > 1) {
        const int lane = threadIdx.x % warpSize;
        smem += threadIdx.y * warps;
        if (lane == 0) smem[threadIdx.x / warpSize] = mine;
        __syncthreads();
        mine = smem[lane % warps];
        for (int mask = warps / 2; mask > 0; mask /= 2) mine.merge(shuffle_xor(mine, mask, warpSize));
    }
    return mine;
}

// Maximum and minimum that propagate NaN.
template <class M> __device__ inline M max_nan(M a, M b) { return a > b || a != a ? a : b; }
template <class M> __device__ inline M min_nan(M a, M b) { return a < b || a != a ? a : b; }
#if !defined(__AMDGCN__) && __CUDA_ARCH__ >= 800
template <> __device__ inline f32 max_nan(f32 a, f32 b) {
    f32 c;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
    return c;
}
template <> __device__ inline f32 min_nan(f32 a, f32 b) {
    f32 c;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
    return c;
}
#elif defined(__AMDGCN__)
// One comparison each: more would fill the scalar registers.
template <> __device__ inline f32 max_nan(f32 a, f32 b) { return __builtin_isunordered(a, b) ? a + b : fmax(a, b); }
template <> __device__ inline f32 min_nan(f32 a, f32 b) { return __builtin_isunordered(a, b) ? a + b : fmin(a, b); }
#endif

// Pairwise reduction: accurate and without a long dependency chain.
template <class F, int N, class M> __device__ inline M tree_reduce(const M *x) {
    if constexpr (N == 1) return x[0];
    else return F::of(tree_reduce<F, N / 2>(x), tree_reduce<F, N - N / 2>(x + N / 2));
}
struct Sum {
    template <class M> static __device__ inline M of(M a, M b) { return a + b; }
};
struct Product {
    template <class M> static __device__ inline M of(M a, M b) { return a * b; }
};
struct MaxNan {
    template <class M> static __device__ inline M of(M a, M b) { return max_nan(a, b); }
};
struct MinNan {
    template <class M> static __device__ inline M of(M a, M b) { return min_nan(a, b); }
};

// A quotient that may be off by an ulp or two.
template <class M> __device__ inline M ratio(M a, M b) { return a / b; }
#if !defined(__AMDGCN__)
template <> __device__ inline f32 ratio(f32 a, f32 b) { return __fdividef(a, b); }
#endif

// Count, mean and sum of squared deviations (Welford). Small groups are computed in two passes and then merged, which avoids the
// cancellation of a sum of squares.
template <class M> struct Welford {
    M n, mean, squares;

    __device__ inline void clear() { n = mean = squares = 0; }
    // The weight of `other` values when merged.
    __device__ inline M share(M other) const { return n > 0 ? ratio(other, n + other) : 1; }
    __device__ inline void merge(M other, M others_mean, M others_squares, M share) {
        const M apart = others_mean - mean;
        // If empty, take the other's values bit by bit.
        mean = n > 0 ? fma(apart, share, mean) : others_mean;
        squares += n > 0 ? fma(apart * apart * share, n, others_squares) : others_squares;
        n += other;
    }
    __device__ inline void merge(const Welford &other) {
        if (other.n > 0) merge(other.n, other.mean, other.squares, share(other.n));
    }
    template <int N> __device__ inline void add(const M (&x)[N], M share) {
        const M others_mean = N == 1 ? x[0] : tree_reduce<Sum, N>(x) * ((M)1 / N);
        M others_squares[2] = {0, 0};
#pragma unroll
        for (int k = 0; k < N; ++k) others_squares[k % 2] = fma(x[k] - others_mean, x[k] - others_mean, others_squares[k % 2]);
        // The deviation of infinity is NaN, also for a single value.
        merge(N, others_mean, N == 1 ? x[0] - x[0] : others_squares[0] + others_squares[1], share);
    }
    template <int N> __device__ inline void add(const M (&x)[N]) { add<N>(x, share(N)); }
};
