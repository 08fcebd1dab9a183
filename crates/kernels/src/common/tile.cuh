// Wave-level matrix products: a 16 × 16 tile of C += A · B, with rows of A and columns of B of 32 bytes.
//
// Blocks are one-dimensional and consist of whole waves. A and B come from shared memory through a functor `at(row, column)` that returns
// the address of an element as stored; each aligned 16-byte chunk must be contiguous. `load_a` and `load_b` read operands stored as named
// (A by m and k, B by k and n), `load_a_t` and `load_b_t` transposed ones.
//
// Element i of a lane's part of C is at (row(i), column(i)). On NVIDIA (sm_80 and later) this is the layout of mma.sync. Elsewhere a lane
// has one row and a run of columns: the layout of MFMA and WMMA with A and B swapped; without matrix units, lanes exchange operands by
// shuffles (correct, but slow). In both, a lane's elements of C, rounded, are its elements of A, so `to_a` moves no data.

#pragma once

#include "common/types.cuh"

typedef signed char i8;

#if defined(__AMDGCN__)
#if defined(__gfx90a__) || defined(__gfx940__) || defined(__gfx941__) || defined(__gfx942__) || defined(__gfx950__)
#define TILE_MFMA
#elif defined(__GFX11__)
#define TILE_WMMA 11
#elif defined(__GFX12__)
#define TILE_WMMA 12
#endif
#else
#if __CUDA_ARCH__ >= 800
#define TILE_MMA
#endif
#endif

__device__ inline int lane_id() { return threadIdx.x % WAVE; }

// An operand of element type E: f16, bf16, i8 or f32. NVIDIA's matrix units round f32 to tf32; MFMA keeps it, WMMA has none.
template <class E> struct TileA {
    static constexpr int M = 16, K = 32 / sizeof(E);
    u32 words[128 / WAVE];
};
template <class E> struct TileB {
    static constexpr int N = 16, K = 32 / sizeof(E);
    u32 words[128 / WAVE];
};
template <class S> struct TileSum {
    // Elements per lane; rows they are in; adjacent elements per row.
    static constexpr int N = 256 / WAVE;
#if defined(TILE_MMA)
    static constexpr int ROWS = 2, RUN = 2;
    static __device__ int slot(int i) { return i / 2 % 2; }
    static __device__ int row(int i) { return lane_id() / 4 + 8 * slot(i); }
    static __device__ int column(int i) { return lane_id() % 4 * 2 + i % 2 + i / 4 * 8; }
#else
    static constexpr int ROWS = 1, RUN = N;
    static __device__ int slot(int) { return 0; }
    static __device__ int row(int) { return lane_id() % 16; }
    static __device__ int column(int i) { return lane_id() / 16 * N + i; }
#endif
    S at[N];

    __device__ void clear() {
#pragma unroll
        for (int i = 0; i < N; ++i) at[i] = 0;
    }
};
typedef TileSum<f32> TileC;
typedef TileSum<i32> TileCInt;

// Reduces over the lanes of a row; every lane gets the result.
template <class V, class F> __device__ inline V across_row(V value, F f) {
#if defined(TILE_MMA)
    value = f(value, __shfl_xor_sync(0xffffffffu, value, 1));
    return f(value, __shfl_xor_sync(0xffffffffu, value, 2));
#else
#pragma unroll
    for (int apart = 16; apart < WAVE; apart *= 2) value = f(value, __shfl_xor_sync(0xffffffffu, value, apart));
    return value;
#endif
}

// Addressing: rows with a stride; and rows of COLUMNS elements whose 16-byte chunks are swizzled, so that a column of chunks in eight rows
// has no bank conflicts. Both are aligned to 16 bytes.
template <class E> struct Strided {
    E *base;
    int stride;
    __device__ E *operator()(int row, int column) const { return base + row * stride + column; }
};
template <class E, int COLUMNS> struct Swizzled {
    // Rows of fewer than eight chunks fill the banks only together.
    static constexpr int EACH = 16 / sizeof(E), PIECES = COLUMNS / EACH, ROWS_PER_LINE = PIECES < 8 ? 8 / PIECES : 1, SWIZZLES = PIECES < 8 ? PIECES : 8;
    E *base;
    __device__ E *operator()(int row, int column) const { return base + offset(row, column); }
    static __device__ int offset(int row, int column) {
        return row * COLUMNS + ((column / EACH) ^ (row / ROWS_PER_LINE % SWIZZLES)) * EACH + column % EACH;
    }
};

// The same functor shifted by (row0, column0); column0 is a multiple of 16 bytes.
template <class At> struct From {
    At at;
    int row0, column0;
    __device__ auto operator()(int row, int column) const { return at(row0 + row, column0 + column); }
};
template <class At> __device__ inline From<At> from(At at, int row0, int column0) { return From<At>{at, row0, column0}; }

// Gathers the elements of a word that are in different rows.
template <class E, class At> __device__ inline u32 gather(At at, int row, int column) {
    const int together = 16 / sizeof(E);
    union { u32 word; E each[4 / sizeof(E)]; } packed;
#pragma unroll
    for (int e = 0; e < 4 / sizeof(E); ++e) packed.each[e] = at(row + e, column / together * together)[column % together];
    return packed.word;
}

#if defined(TILE_MMA)

__device__ inline u32 shared_address(const void *at) { return (u32)__cvta_generic_to_shared(at); }

template <bool TRANSPOSE> __device__ inline void load_matrices(u32 (&words)[4], const void *at) {
    if constexpr (TRANSPOSE) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                     : "r"(shared_address(at))
                     : "memory");
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                     : "r"(shared_address(at))
                     : "memory");
    }
}
// The matrix units truncate f32, so it is rounded first.
template <class E> __device__ inline void rounded(u32 (&words)[4]) {
    if constexpr (sizeof(E) == 4) {
#pragma unroll
        for (int j = 0; j < 4; ++j) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(words[j]) : "f"(__uint_as_float(words[j])));
    }
}

template <class E, class At> __device__ inline void load_a(TileA<E> &a, At at) {
    const int lane = lane_id();
    load_matrices<false>(a.words, at(lane % 16, lane / 16 * (16 / sizeof(E))));
    rounded<E>(a.words);
}
template <class E, class At> __device__ inline void load_b_t(TileB<E> &b, At at) {
    const int lane = lane_id();
    load_matrices<false>(b.words, at(lane % 8 + lane / 16 * 8, lane / 8 % 2 * (16 / sizeof(E))));
    rounded<E>(b.words);
}
template <class E, class At> __device__ inline void load_a_t(TileA<E> &a, At at) {
    const int lane = lane_id();
    if constexpr (sizeof(E) == 2) {
        load_matrices<true>(a.words, at(lane % 8 + lane / 16 * 8, lane / 8 % 2 * 8));
    } else {
        const int each = 4 / sizeof(E);
#pragma unroll
        for (int j = 0; j < 4; ++j) a.words[j] = gather<E>(at, j / 2 * 4 * each + lane % 4 * each, lane / 4 + j % 2 * 8);
        rounded<E>(a.words);
    }
}
template <class E, class At> __device__ inline void load_b(TileB<E> &b, At at) {
    const int lane = lane_id();
    if constexpr (sizeof(E) == 2) {
        load_matrices<true>(b.words, at(lane % 16, lane / 16 * 8));
    } else {
        const int each = 4 / sizeof(E);
#pragma unroll
        for (int j = 0; j < 4; ++j) b.words[j] = gather<E>(at, j % 2 * 4 * each + lane % 4 * each, lane / 4 + j / 2 * 8);
        rounded<E>(b.words);
    }
}

// c += a · b, 8 columns.
#define TILE_MMA_OF(E, S, R, TEXT)                                                                                                 \
    __device__ inline void mma_half(S *c, const TileA<E> &a, u32 b0, u32 b1) {                                                     \
        asm("mma.sync.aligned." TEXT " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                            \
            : "+" R(c[0]), "+" R(c[1]), "+" R(c[2]), "+" R(c[3])                                                                   \
            : "r"(a.words[0]), "r"(a.words[1]), "r"(a.words[2]), "r"(a.words[3]), "r"(b0), "r"(b1));                               \
    }
TILE_MMA_OF(f16, f32, "f", "m16n8k16.row.col.f32.f16.f16.f32")
TILE_MMA_OF(bf16, f32, "f", "m16n8k16.row.col.f32.bf16.bf16.f32")
TILE_MMA_OF(f32, f32, "f", "m16n8k8.row.col.f32.tf32.tf32.f32")
TILE_MMA_OF(i8, i32, "r", "m16n8k32.row.col.s32.s8.s8.s32")

template <class E, class S> __device__ inline void mma(TileSum<S> &c, const TileA<E> &a, const TileB<E> &b) {
    mma_half(c.at, a, b.words[0], b.words[1]);
    mma_half(c.at + 4, a, b.words[2], b.words[3]);
}

// Packs two numbers into a word, the first in the low half.
template <class E> __device__ inline u32 pair(f32 low, f32 high);
template <> __device__ inline u32 pair<f16>(f32 low, f32 high) {
    u32 word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}
template <> __device__ inline u32 pair<bf16>(f32 low, f32 high) {
    u32 word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}

#else

// The column of B that a lane of 0 to 15 has, and the lane that has a column. WMMA of gfx11 spreads the rows of its result over the lanes
// alternately; with this order of the columns, each half of the lanes gets adjacent ones.
#if defined(TILE_WMMA) && TILE_WMMA == 11
__device__ inline int column_of_lane(int lane) { return lane % 2 * 8 + lane / 2; }
__device__ inline int lane_of_column(int column) { return column % 8 * 2 + column / 8; }
#else
__device__ inline int column_of_lane(int lane) { return lane; }
__device__ inline int lane_of_column(int column) { return column; }
#endif

// Loads a lane's run of 32 bytes of `row`.
template <class E, class At> __device__ inline void load_run(u32 (&words)[128 / WAVE], At at, int row) {
    const int lane = lane_id();
    struct alignas(512 / WAVE) Run { u32 words[128 / WAVE]; };
    // 8 bytes may be the second half of a 16-byte chunk.
    const int first = lane / 16 * (512 / WAVE / sizeof(E)), together = 16 / sizeof(E);
    const Run run = *(const Run *)(at(row, first / together * together) + first % together);
#pragma unroll
    for (int j = 0; j < 128 / WAVE; ++j) words[j] = run.words[j];
}
template <class E, class At> __device__ inline void gather_run(u32 (&words)[128 / WAVE], At at, int column) {
    const int lane = lane_id();
#pragma unroll
    for (int j = 0; j < 128 / WAVE; ++j) words[j] = gather<E>(at, (lane / 16 * (128 / WAVE) + j) * (4 / sizeof(E)), column);
}
template <class E, class At> __device__ inline void load_a(TileA<E> &a, At at) { load_run<E>(a.words, at, lane_id() % 16); }
template <class E, class At> __device__ inline void load_b_t(TileB<E> &b, At at) { load_run<E>(b.words, at, column_of_lane(lane_id() % 16)); }
template <class E, class At> __device__ inline void load_a_t(TileA<E> &a, At at) { gather_run<E>(a.words, at, lane_id() % 16); }
template <class E, class At> __device__ inline void load_b(TileB<E> &b, At at) { gather_run<E>(b.words, at, column_of_lane(lane_id() % 16)); }

template <class E> __device__ inline u32 pair(f32 low, f32 high) {
    return (u32)Narrow<E>::from(low).bits | (u32)Narrow<E>::from(high).bits << 16;
}

#if defined(TILE_MFMA)

typedef f32 FourFloats __attribute__((ext_vector_type(4)));
typedef i32 FourInts __attribute__((ext_vector_type(4)));
typedef _Float16 FourHalves __attribute__((ext_vector_type(4)));
typedef short FourShorts __attribute__((ext_vector_type(4)));
struct TwoFloats { f32 x, y; };

// The order of k is the same for both operands, and otherwise free.
__device__ inline FourFloats mfma(f16, const u64 &a, const u64 &b, FourFloats c) {
    return __builtin_amdgcn_mfma_f32_16x16x16f16(__builtin_bit_cast(FourHalves, b), __builtin_bit_cast(FourHalves, a), c, 0, 0, 0);
}
__device__ inline FourFloats mfma(bf16, const u64 &a, const u64 &b, FourFloats c) {
    return __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(__builtin_bit_cast(FourShorts, b), __builtin_bit_cast(FourShorts, a), c, 0, 0, 0);
}
__device__ inline FourFloats mfma(f32, const u64 &a, const u64 &b, FourFloats c) {
    const TwoFloats first = __builtin_bit_cast(TwoFloats, a), second = __builtin_bit_cast(TwoFloats, b);
    c = __builtin_amdgcn_mfma_f32_16x16x4f32(second.x, first.x, c, 0, 0, 0);
    return __builtin_amdgcn_mfma_f32_16x16x4f32(second.y, first.y, c, 0, 0, 0);
}
__device__ inline FourInts mfma(i8, const u64 &a, const u64 &b, FourInts c) {
#if defined(__gfx90a__)
    c = __builtin_amdgcn_mfma_i32_16x16x16i8((int)b, (int)a, c, 0, 0, 0);
    return __builtin_amdgcn_mfma_i32_16x16x16i8((int)(b >> 32), (int)(a >> 32), c, 0, 0, 0);
#else
    return __builtin_amdgcn_mfma_i32_16x16x32_i8((long)b, (long)a, c, 0, 0, 0);
#endif
}

template <class E, class S> __device__ inline void mma(TileSum<S> &c, const TileA<E> &a, const TileB<E> &b) {
    typedef S Four __attribute__((ext_vector_type(4)));
    Four sum = {c.at[0], c.at[1], c.at[2], c.at[3]};
    sum = mfma(E(), __builtin_bit_cast(u64, a), __builtin_bit_cast(u64, b), sum);
#pragma unroll
    for (int i = 0; i < 4; ++i) c.at[i] = sum[i];
}

#else

__device__ inline i32 tile_value(i8 x) { return x; }
template <class E> __device__ inline f32 tile_value(E x) { return widen(x); }

template <class E, class S> __device__ inline void mma_by_shuffles(TileSum<S> &c, const TileA<E> &a, const TileB<E> &b) {
    const int lane = lane_id(), words = 128 / WAVE;
    union Word { u32 word; E each[4 / sizeof(E)]; __device__ Word() {} };
    // Not unrolled: it is slow anyway and would be long.
#pragma unroll 1
    for (int part = 0; part < WAVE / 16; ++part) {
#pragma unroll
        for (int j = 0; j < words; ++j) {
            Word x, y;
            x.word = __shfl_sync(0xffffffffu, a.words[j], lane % 16 + 16 * part);
#pragma unroll
            for (int i = 0; i < TileSum<S>::N; ++i) {
                y.word = __shfl_sync(0xffffffffu, b.words[j], lane_of_column(lane / 16 * TileSum<S>::N + i) + 16 * part);
#pragma unroll
                for (int e = 0; e < 4 / sizeof(E); ++e) c.at[i] += tile_value(x.each[e]) * tile_value(y.each[e]);
            }
        }
    }
}

#if defined(TILE_WMMA)

typedef f32 EightFloats __attribute__((ext_vector_type(8)));
typedef i32 EightInts __attribute__((ext_vector_type(8)));
typedef i32 FourInts __attribute__((ext_vector_type(4)));
typedef i32 TwoInts __attribute__((ext_vector_type(2)));
typedef _Float16 EightHalves __attribute__((ext_vector_type(8)));
typedef _Float16 SixteenHalves __attribute__((ext_vector_type(16)));
typedef short EightShorts __attribute__((ext_vector_type(8)));
typedef short SixteenShorts __attribute__((ext_vector_type(16)));

#if TILE_WMMA == 11

// All 32 bytes of a row, which gfx11 wants in both halves of the lanes.
struct FullRow {
    u32 words[8];
};
__device__ inline FullRow full_row(const u32 (&words)[4]) {
    FullRow row;
    const bool upper = lane_id() >= 16;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        const u32 other = __builtin_amdgcn_permlanex16(words[j], words[j], 0x76543210, 0xfedcba98, false, false);
        row.words[j] = upper ? other : words[j];
        row.words[4 + j] = upper ? words[j] : other;
    }
    return row;
}
__device__ inline EightFloats wmma(f16, const FullRow &a, const FullRow &b, EightFloats c) {
    return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(__builtin_bit_cast(SixteenHalves, b), __builtin_bit_cast(SixteenHalves, a), c);
}
__device__ inline EightFloats wmma(bf16, const FullRow &a, const FullRow &b, EightFloats c) {
    return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(__builtin_bit_cast(SixteenShorts, b), __builtin_bit_cast(SixteenShorts, a), c);
}
__device__ inline EightInts wmma(i8, const FullRow &a, const FullRow &b, EightInts c) {
    struct Halves { FourInts low, high; };
    const Halves x = __builtin_bit_cast(Halves, a), y = __builtin_bit_cast(Halves, b);
    c = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(true, y.low, true, x.low, c, false);
    return __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(true, y.high, true, x.high, c, false);
}

#else

// The order of k is the same for both operands, and otherwise free.
struct FullRow {
    u32 words[4];
};
__device__ inline FullRow full_row(const u32 (&words)[4]) { return FullRow{{words[0], words[1], words[2], words[3]}}; }
__device__ inline EightFloats wmma(f16, const FullRow &a, const FullRow &b, EightFloats c) {
    return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(__builtin_bit_cast(EightHalves, b), __builtin_bit_cast(EightHalves, a), c);
}
__device__ inline EightFloats wmma(bf16, const FullRow &a, const FullRow &b, EightFloats c) {
    return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(__builtin_bit_cast(EightShorts, b), __builtin_bit_cast(EightShorts, a), c);
}
__device__ inline EightInts wmma(i8, const FullRow &a, const FullRow &b, EightInts c) {
    struct Halves { TwoInts low, high; };
    const Halves x = __builtin_bit_cast(Halves, a), y = __builtin_bit_cast(Halves, b);
    c = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(true, y.low, true, x.low, c, false);
    return __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(true, y.high, true, x.high, c, false);
}

#endif

template <class E, class S> __device__ inline void mma(TileSum<S> &c, const TileA<E> &a, const TileB<E> &b) {
    if constexpr (sizeof(E) == 4) {
        mma_by_shuffles(c, a, b);
    } else {
        typedef S Eight __attribute__((ext_vector_type(8)));
        Eight sum = {c.at[0], c.at[1], c.at[2], c.at[3], c.at[4], c.at[5], c.at[6], c.at[7]};
        sum = wmma(E(), full_row(a.words), full_row(b.words), sum);
#pragma unroll
        for (int i = 0; i < 8; ++i) c.at[i] = sum[i];
    }
}

#else

template <class E, class S> __device__ inline void mma(TileSum<S> &c, const TileA<E> &a, const TileB<E> &b) { mma_by_shuffles(c, a, b); }

#endif
#endif
#endif

// Converts an accumulator to the first operand of the next product: 16 × 16 of f16 or bf16.
template <class E> __device__ inline TileA<E> to_a(const TileC &c) {
    TileA<E> a;
#pragma unroll
    for (int j = 0; j < 128 / WAVE; ++j) a.words[j] = pair<E>(c.at[2 * j], c.at[2 * j + 1]);
    return a;
}

// Copies 16 bytes from global to shared memory asynchronously. If `bytes` is less, the rest is zero-filled and not read. Complete for this
// thread after `wait_copies<PENDING>()`, which leaves PENDING `commit_copies()` groups in flight. AMD has no such copy and copies
// synchronously.
__device__ inline void copy_async16(void *to, const void *from, int bytes = 16) {
#if defined(TILE_MMA)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes) : "memory");
#else
    if (bytes == 16) {
        *(uint4 *)to = *(const uint4 *)from;
    } else {
#pragma unroll 1
        for (int i = 0; i < 16; ++i) ((u8 *)to)[i] = i < bytes ? ((const u8 *)from)[i] : 0;
    }
#endif
}
// The same to `to + offset`, for full 128-byte lines that are read once: L2 fetches whole lines and evicts them first.
template <class E> __device__ inline void copy_once16(E *to, int offset, const E *from) {
#if defined(TILE_MMA)
    u64 policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0;" : "=l"(policy));
    asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address(to) + offset * (u32)sizeof(E)),
                 "l"(from), "l"(policy)
                 : "memory");
#else
    copy_async16(to + offset, from);
#endif
}
__device__ inline void commit_copies() {
#if defined(TILE_MMA)
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int PENDING> __device__ inline void wait_copies() {
#if defined(TILE_MMA)
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#endif
}
