// Weights of matrix units' products: quantized ones as f16, 16 times the weights; f16 and bf16 as they are.
//
// Activations are divided by 16 for f16 when they are packed, so that neither overflows. Chunks have 256 columns, of plain weights 128:
// groups of eight steps of 16. A lane has whole quantized units of a group, the four words of the first run in steps 0 to 3, those of the second in steps 4 to 7.
// The order of columns within a group is thus not that of memory, but packed activations have the same: sums do not depend on it.

#pragma once

#include "common/tile.cuh"
#include "quant/blocks.cuh"


// The type of products with weights of F; what activations are divided by, and what sums are multiplied by.
template <class F> struct Operand {
    typedef f16 Type;
    static constexpr f32 DIVISOR = 16, FACTOR = 1;
    // Columns of a chunk.
    static constexpr int COLUMNS = 256;
};
template <> struct Operand<f16> {
    typedef f16 Type;
    static constexpr f32 DIVISOR = 16, FACTOR = 16;
    static constexpr int COLUMNS = 128;
};
template <> struct Operand<bf16> {
    typedef bf16 Type;
    static constexpr f32 DIVISOR = 1, FACTOR = 1;
    static constexpr int COLUMNS = 128;
};

// What a position of 0 to 15 in a step holds: element `element` of the word of unit `unit`, 0 to 3, of the group.
struct Position {
    int unit, element;
};
__device__ inline Position position(int at) {
#if defined(__AMDGCN__)
    return Position{at / 4, at % 4};
#else
    return Position{at % 8 / 2, at % 2 + at / 8 * 2};
#endif
}
// The column of an element of a step of a group, relative to the chunk.
template <class F> struct Order {
    static __device__ int column(int group, int step, const Position &at) {
        const int unit = group * 4 + at.unit;
        return unit / units_of<F>() * F::BLOCK + F::first(unit % units_of<F>()) + step / 4 * F::GAP + step % 4 * 4 + at.element;
    }
};
struct PlainOrder {
    static __device__ int column(int group, int step, const Position &at) { return group * 128 + step * 16 + at.unit * 4 + at.element; }
};
template <> struct Order<f16> : PlainOrder {};
template <> struct Order<bf16> : PlainOrder {};

// A scale and a minimum, each twice as f16.
struct HalfScale {
    u32 d, m;
};
__device__ inline u32 twice(f32 x) { return (u32)to_f16(x) * 0x00010001u; }

#if defined(__AMDGCN__)
typedef _Float16 TwoHalves __attribute__((ext_vector_type(2)));
__device__ inline u32 subtract_halves(u32 a, u32 b) {
    return __builtin_bit_cast(u32, __builtin_bit_cast(TwoHalves, a) - __builtin_bit_cast(TwoHalves, b));
}
__device__ inline u32 multiply_halves(u32 a, u32 b) {
    return __builtin_bit_cast(u32, __builtin_bit_cast(TwoHalves, a) * __builtin_bit_cast(TwoHalves, b));
}
__device__ inline u32 multiply_add_halves(u32 a, u32 b, u32 c) {
#if !__has_builtin(__builtin_elementwise_fma)
    // Older compilers have it for single elements.
    const TwoHalves x = __builtin_bit_cast(TwoHalves, a), y = __builtin_bit_cast(TwoHalves, b), z = __builtin_bit_cast(TwoHalves, c);
    const TwoHalves sums = {(_Float16)__builtin_fmaf16(x[0], y[0], z[0]), (_Float16)__builtin_fmaf16(x[1], y[1], z[1])};
    return __builtin_bit_cast(u32, sums);
#else
    return __builtin_bit_cast(u32, __builtin_elementwise_fma(__builtin_bit_cast(TwoHalves, a), __builtin_bit_cast(TwoHalves, b), __builtin_bit_cast(TwoHalves, c)));
#endif
}
#else
__device__ inline u32 subtract_halves(u32 a, u32 b) {
    u32 c;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    return c;
}
__device__ inline u32 multiply_halves(u32 a, u32 b) {
    u32 c;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    return c;
}
__device__ inline u32 multiply_add_halves(u32 a, u32 b, u32 c) {
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(c) : "r"(a), "r"(b), "r"(c));
    return c;
}
#endif

// Four codes as weights: two pairs.
template <class F> __device__ inline void to_halves(u32 codes, const HalfScale &scale, u32 &first, u32 &second) {
    if (F::SIGNED) codes ^= 0x80808080u;
    // As the low bits of 1024 a byte adds its value.
    const u32 zero = (0x6400u + (F::SIGNED ? 128 : F::ZERO)) * 0x00010001u;
    const u32 low = subtract_halves(__byte_perm(codes, 0x64646464u, 0x4140), zero);
    const u32 high = subtract_halves(__byte_perm(codes, 0x64646464u, 0x4342), zero);
    first = F::MINIMUM ? multiply_add_halves(low, scale.d, scale.m) : multiply_halves(low, scale.d);
    second = F::MINIMUM ? multiply_add_halves(high, scale.d, scale.m) : multiply_halves(high, scale.d);
}

// Rows of a chunk in shared memory: each begins at a multiple of 16 bytes plus the low bits of its address in global memory.
template <class F> struct ChunkRows {
    static constexpr int BYTES = Operand<F>::COLUMNS / F::BLOCK * F::BYTES;
    // The most 16-byte pieces that a row touches. Formats of 16-byte words are aligned.
    static constexpr int PIECES = F::ALIGN >= 16 ? BYTES / 16 : (BYTES + 15 + 15) / 16;
    // Words are read up to one beyond the last. An odd number of pieces avoids bank conflicts.
    static constexpr int STRIDE = (PIECES + 1 | 1) * 16;
};

// Aligned rows; the padding avoids bank conflicts of lanes that read 8 bytes.
struct PlainRows {
    static constexpr int BYTES = Operand<f16>::COLUMNS * 2, PIECES = BYTES / 16, STRIDE = BYTES + 32;
};
template <> struct ChunkRows<f16> : PlainRows {};
template <> struct ChunkRows<bf16> : PlainRows {};

// A lane's units of 16 rows and a group of columns, and their operands.
template <class F> struct LaneUnits {
    // Units of a lane: of two rows on NVIDIA; of one row elsewhere, two with waves of 32.
    static constexpr int EACH = 64 / WAVE;
    Unit<F, 4, true> units[EACH];
    HalfScale scales[EACH][2];
    int unit[EACH];

    static __device__ int row(int i) {
#if defined(__AMDGCN__)
        return lane_id() % 16;
#else
        return lane_id() / 4 + 8 * i;
#endif
    }
    static __device__ int unit_of(int i) {
#if defined(__AMDGCN__)
        return lane_id() / 16 * EACH + i;
#else
        return lane_id() % 4;
#endif
    }

    // `rows` are 16 rows in shared memory, the first of them row0; `low` the low bits of its address, and `pitch` what it grows by per row.
    __device__ inline void load(const u8 *rows, u32 low, u32 pitch, int group, const SeparateScales &separate, u32 row0, u32 last_row, u32 unit0, u32 last_unit) {
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            const int u = group * 4 + unit_of(i);
            const u32 skew = F::ALIGN >= 16 ? 0 : (low + row(i) * pitch) % 16;
            const u32 at = skew + u / units_of<F>() * F::BYTES;
            const u8 *block = rows + row(i) * ChunkRows<F>::STRIDE + at;
            unit[i] = u % units_of<F>();
            units[i].load(block, at, unit[i]);
            Scale runs[2];
            F::scales(runs, block, unit[i], separate, min(row0 + row(i), last_row), min(unit0 + u, last_unit));
#pragma unroll
            for (int run = 0; run < 2; ++run) scales[i][run] = HalfScale{twice(runs[run].d * Operand<F>::DIVISOR), F::MINIMUM ? twice(runs[run].m * Operand<F>::DIVISOR) : 0};
        }
    }

    // The operand of a step.
    __device__ inline TileA<f16> tile(int step) const {
        TileA<f16> a;
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            u32 pair[2];
            to_halves<F>(units[i].codes(unit[i], step / 4, step % 4), scales[i][step / 4], pair[0], pair[1]);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
#if defined(__AMDGCN__)
                a.words[i * 2 + half] = pair[half];
#else
                a.words[half * 2 + i] = pair[half];
#endif
            }
        }
        return a;
    }
};
template <class E> struct PlainUnits {
    const u8 *row;
    __device__ inline void load(const u8 *rows, u32, u32, int group, const SeparateScales &, u32, u32, u32, u32) {
#if defined(__AMDGCN__)
        row = rows + lane_id() % 16 * PlainRows::STRIDE + group * 256 + lane_id() / 16 * (512 / WAVE);
#else
        row = rows + lane_id() / 4 * PlainRows::STRIDE + group * 256 + lane_id() % 4 * 8;
#endif
    }
    __device__ inline TileA<E> tile(int step) const {
        TileA<E> a;
#if defined(__AMDGCN__)
        struct alignas(512 / WAVE) Run { u32 words[128 / WAVE]; };
        const Run run = *(const Run *)(row + step * 32);
#pragma unroll
        for (int i = 0; i < 128 / WAVE; ++i) a.words[i] = run.words[i];
#else
        const uint2 upper = *(const uint2 *)(row + step * 32), lower = *(const uint2 *)(row + 8 * PlainRows::STRIDE + step * 32);
        a.words[0] = upper.x, a.words[1] = lower.x, a.words[2] = upper.y, a.words[3] = lower.y;
#endif
        return a;
    }
};
template <> struct LaneUnits<f16> : PlainUnits<f16> {};
template <> struct LaneUnits<bf16> : PlainUnits<bf16> {};
