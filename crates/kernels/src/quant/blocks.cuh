// Quantized formats: low-bit codes with shared scales.
//
// A format F packs BLOCK weights of a row into BYTES bytes. Threads process units: 32 weights in two runs of 16, the second GAP after the
// first, which starts at first(unit) of the block. A weight is d * (code - ZERO) + m, with the scale (d, m) of its run; m is 0 unless
// MINIMUM. SEPARATE_SCALES: scales are not in the blocks; separate() reads what scale() converts.
//
// Codes come four per word: word k of a unit has weights 4k to 4k + 3 of the first run, from k = 4 on of the second. They are assembled
// from words of the block: LOW words from low_at(unit) on, of which word k uses k % LOW, and HIGH words from high_at(unit) on. ALIGN is the
// alignment of these words; blocks have it in shared memory, and at most 4 bytes elsewhere. SIGNED codes are signed bytes, others unsigned;
// all are below 128. SPLIT: 32 consecutive weights have two scales. OVERREAD_OK: one word beyond a unit's is still in the block.
// Codes that stand for values of a table are signed bytes: the values.

#pragma once

#include "common/types.cuh"

typedef signed char i8;

__device__ inline f32 half_at(const u8 *at) {
    f16 half = {*(const u16 *)at};
    return widen(half);
}

// Dot product of four signed bytes, plus c.
__device__ inline i32 dot4(u32 a, u32 b, i32 c) {
#if defined(__AMDGCN__)
    return __dp4a((i32)a, (i32)b, c);
#else
    asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(c) : "r"(a), "r"(b), "r"(c));
    return c;
#endif
}

// A byte of a word minus `less`, as a float; exact.
__device__ inline f32 byte_of(u32 word, int i, int less) {
#if defined(__AMDGCN__)
    return (f32)(word >> 8 * i & 255u) - (f32)less;
#else
    // As the low bits of 2^23 the byte adds its value.
    return __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7440 + i)) - (f32)(8388608 + less);
#endif
}

struct Scale { f32 d, m; };

// A group has 1 << shift units, a row in_row groups.
struct Groups { u32 shift, in_row; };

// Scales and zero points stored outside the blocks.
struct SeparateScales {
    const void *scales;
    const u8 *zeros;
    Groups groups;
};

struct q4_0 {
    static const int BLOCK = 32, BYTES = 18, ALIGN = 2, GAP = 16, ZERO = 8, LOW = 4, HIGH = 0;
    static const bool SIGNED = false, MINIMUM = false, SPLIT = false, SEPARATE_SCALES = false, OVERREAD_OK = false;
    static __device__ int first(int) { return 0; }
    static __device__ int low_at(int) { return 2; }
    static __device__ int high_at(int) { return 0; }
    static __device__ u32 codes(u32 low, u32, int, int k) { return low >> k / 4 * 4 & 0x0f0f0f0fu; }
    static __device__ u32 separate(const SeparateScales &, u64, u32) { return 0; }
    static __device__ Scale scale(u32) { return {0, 0}; }
    static __device__ void scales(Scale (&runs)[2], const u8 *block, int, const SeparateScales &, u64, u32) { runs[0] = runs[1] = {half_at(block), 0}; }
};

struct q4_1 : q4_0 {
    static const int BYTES = 20, ALIGN = 4, ZERO = 0;
    static const bool MINIMUM = true;
    static __device__ int low_at(int) { return 4; }
    static __device__ void scales(Scale (&runs)[2], const u8 *block, int, const SeparateScales &, u64, u32) {
        const u32 both = *(const u32 *)block;
        f16 d = {(u16)both}, m = {(u16)(both >> 16)};
        runs[0] = runs[1] = {widen(d), widen(m)};
    }
};

struct q5_0 : q4_0 {
    static const int BYTES = 22, ZERO = 16, HIGH = 1;
    static __device__ int low_at(int) { return 6; }
    static __device__ int high_at(int) { return 2; }
    static __device__ u32 codes(u32 low, u32 high, int, int k) {
        // The multiplication moves bits 0 to 3 to the fifth bit of each code, without carries.
        return (low >> k / 4 * 4 & 0x0f0f0f0fu) | ((high >> 4 * k & 15u) * 0x02040810u & 0x10101010u);
    }
};

struct q5_1 : q5_0 {
    static const int BYTES = 24, ALIGN = 4, ZERO = 0;
    static const bool MINIMUM = true;
    static __device__ int low_at(int) { return 8; }
    static __device__ int high_at(int) { return 4; }
    static __device__ void scales(Scale (&runs)[2], const u8 *block, int, const SeparateScales &, u64, u32) {
        const u32 both = *(const u32 *)block;
        f16 d = {(u16)both}, m = {(u16)(both >> 16)};
        runs[0] = runs[1] = {widen(d), widen(m)};
    }
};

struct q8_0 : q4_0 {
    static const int BYTES = 34, ZERO = 0, LOW = 8;
    static const bool SIGNED = true;
    static __device__ u32 codes(u32 low, u32, int, int) { return low; }
};

struct q8_1 : q8_0 {
    static const int BYTES = 36, ALIGN = 4;
    static __device__ int low_at(int) { return 4; }
};

// 8 runs of 32, two of which share 32 bytes; each has a 6-bit scale and minimum, times those of the block.
struct q4_k : q4_0 {
    static const int BLOCK = 256, BYTES = 144, ALIGN = 16, GAP = 32, ZERO = 0, LOW = 4, HIGH = 0;
    static const bool MINIMUM = true;
    static __device__ int first(int unit) { return unit / 2 * 64 + unit % 2 * 16; }
    static __device__ int low_at(int unit) { return 16 + unit * 16; }
    static __device__ int high_at(int) { return 0; }
    static __device__ u32 codes(u32 low, u32, int, int k) { return low >> k / 4 * 4 & 0x0f0f0f0fu; }
    static __device__ void scales(Scale (&runs)[2], const u8 *block, int unit, const SeparateScales &, u64, u32) {
        const u32 *words = (const u32 *)block;
        // The scales of the two runs are adjacent.
        const int shift = unit / 2 % 2 * 16;
        const u32 first = words[1] >> shift, second = words[2] >> shift, third = words[3] >> shift;
        const u32 ds = unit < 4 ? first & 0x3f3fu : (third & 0x0f0fu) | (first >> 2 & 0x3030u);
        const u32 ms = unit < 4 ? second & 0x3f3fu : (third >> 4 & 0x0f0fu) | (second >> 2 & 0x3030u);
        f16 d = {(u16)words[0]}, m = {(u16)(words[0] >> 16)};
        runs[0] = {widen(d) * byte_of(ds, 0, 0), -widen(m) * byte_of(ms, 0, 0)};
        runs[1] = {widen(d) * byte_of(ds, 1, 0), -widen(m) * byte_of(ms, 1, 0)};
    }
};

struct q5_k : q4_k {
    static const int BYTES = 176, HIGH = 4;
    static __device__ int low_at(int unit) { return 48 + unit * 16; }
    static __device__ int high_at(int unit) { return 16 + unit % 2 * 16; }
    static __device__ u32 codes(u32 low, u32 high, int unit, int k) {
        return (low >> k / 4 * 4 & 0x0f0f0f0fu) | (high >> (unit / 2 * 2 + k / 4) & 0x01010101u) << 4;
    }
};

// 16 runs of 16 with an 8-bit scale each. Two halves: 4 low bits in 64 bytes, 2 high bits of four runs in 32.
struct q6_k : q4_0 {
    static const int BLOCK = 256, BYTES = 210, ALIGN = 2, GAP = 64, ZERO = 32, LOW = 4, HIGH = 4;
    static const bool SPLIT = true, OVERREAD_OK = true;
    static __device__ int first(int unit) { return unit / 4 * 128 + unit % 4 * 16; }
    static __device__ int low_at(int unit) { return unit * 16; }
    static __device__ int high_at(int unit) { return 128 + unit / 4 * 32 + unit % 2 * 16; }
    static __device__ u32 codes(u32 low, u32 high, int unit, int k) {
        return (low >> k / 4 * 4 & 0x0f0f0f0fu) | (high >> (unit / 2 % 2 * 2 + k / 4 * 4) & 0x03030303u) << 4;
    }
    static __device__ void scales(Scale (&runs)[2], const u8 *block, int unit, const SeparateScales &, u64, u32) {
        const u8 *each = block + 192 + unit / 4 * 8 + unit % 4;
        const f32 d = half_at(block + 208);
        runs[0] = {d * (f32)(i8)each[0], 0};
        runs[1] = {d * (f32)(i8)each[4], 0};
    }
};

// 16 runs of 16 with a 4-bit scale and minimum each. Two halves: 2 bits of four runs of 32 in 32 bytes.
struct q2_k : q6_k {
    static const int BYTES = 84, ALIGN = 4, ZERO = 0, HIGH = 0;
    static const bool MINIMUM = true;
    static __device__ int low_at(int unit) { return 16 + unit / 4 * 32 + unit % 2 * 16; }
    static __device__ int high_at(int) { return 0; }
    static __device__ u32 codes(u32 low, u32, int unit, int k) { return low >> (unit / 2 % 2 * 2 + k / 4 * 4) & 0x03030303u; }
    static __device__ void scales(Scale (&runs)[2], const u8 *block, int unit, const SeparateScales &, u64, u32) {
        const u8 *each = block + unit / 4 * 8 + unit % 4;
        const u32 both = *(const u32 *)(block + 80);
        f16 d = {(u16)both}, m = {(u16)(both >> 16)};
#pragma unroll
        for (int run = 0; run < 2; ++run) {
            const u32 parts = each[4 * run];
            runs[run] = {widen(d) * (f32)(parts & 15u), -widen(m) * (f32)(parts >> 4)};
        }
    }
};

// 16 runs of 16 with a 6-bit scale each. 2 low bits as in q2_k, the third bits of eight runs of 32 in 32 bytes.
struct q3_k : q6_k {
    static const int BYTES = 110, ZERO = 4;
    static __device__ int low_at(int unit) { return 32 + unit / 4 * 32 + unit % 2 * 16; }
    static __device__ int high_at(int unit) { return unit % 2 * 16; }
    static __device__ u32 codes(u32 low, u32 high, int unit, int k) {
        return (low >> (unit / 2 % 2 * 2 + k / 4 * 4) & 0x03030303u) | (high >> (unit / 4 * 4 + unit / 2 % 2 + k / 4 * 2) & 0x01010101u) << 2;
    }
    static __device__ void scales(Scale (&runs)[2], const u8 *block, int unit, const SeparateScales &, u64, u32) {
        const f32 d = half_at(block + 108);
#pragma unroll
        for (int run = 0; run < 2; ++run) {
            const int i = unit / 4 * 8 + unit % 4 + run * 4;
            const int low = block[96 + i % 8] >> i / 8 * 4 & 15, high = block[104 + i % 4] >> i / 4 * 2 & 3;
            runs[run] = {d * (f32)((low | high << 4) - 32), 0};
        }
    }
};

// Blocks of 256 with an f32 scale; sums of 16 at the end.
struct q8_k : q8_0 {
    static const int BLOCK = 256, BYTES = 292, ALIGN = 4;
    static __device__ int first(int unit) { return unit * 32; }
    static __device__ int low_at(int unit) { return 4 + unit * 32; }
    static __device__ void scales(Scale (&runs)[2], const u8 *block, int, const SeparateScales &, u64, u32) {
        runs[0] = runs[1] = {*(const f32 *)block, 0};
    }
};

// Looks up the low nibble of each byte in 16 signed bytes.
__device__ inline u32 look_up(u32 nibbles, u32 t0, u32 t1, u32 t2, u32 t3) {
#if defined(__AMDGCN__)
    const u32 low = nibbles & 0x07070707u;
    const u32 a = __builtin_amdgcn_perm(t1, t0, low), b = __builtin_amdgcn_perm(t3, t2, low);
    return __builtin_amdgcn_perm(b, a, 0x03020100u | (nibbles >> 1 & 0x04040404u));
#else
    const u32 pairs = (nibbles | nibbles >> 4) & 0x00ff00ffu, packed = (pairs | pairs >> 8) & 0xffffu;
    const u32 a = __byte_perm(t0, t1, packed & 0x7777u), b = __byte_perm(t2, t3, packed & 0x7777u);
    return __byte_perm(a, b, 0x3210u | (packed >> 1 & 0x4444u));
#endif
}

// The codes are -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113.
struct iq4_nl : q4_0 {
    static const int ZERO = 0;
    static const bool SIGNED = true;
    static __device__ u32 codes(u32 low, u32, int, int k) {
        return look_up(low >> k / 4 * 4 & 0x0f0f0f0fu, 0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u);
    }
};

// 8 runs of 32 with a 6-bit scale each.
struct iq4_xs : iq4_nl {
    static const int BLOCK = 256, BYTES = 136, ALIGN = 4;
    static __device__ int first(int unit) { return unit * 32; }
    static __device__ int low_at(int unit) { return 8 + unit * 16; }
    static __device__ void scales(Scale (&runs)[2], const u8 *block, int unit, const SeparateScales &, u64, u32) {
        const u32 head = *(const u32 *)block, low = block[4 + unit / 2] >> unit % 2 * 4 & 15u, high = head >> (16 + 2 * unit) & 3u;
        const f16 d = {(u16)head};
        runs[0] = runs[1] = {widen(d) * (f32)((int)(low | high << 4) - 32), 0};
    }
};

// e2m1 numbers with a power of two as scale. Codes are twice the numbers, so that they are integers: 0, 1, 2, 3, 4, 6, 8, 12 and the negatives.
struct mxfp4 : q4_0 {
    static const int BYTES = 17, ALIGN = 1, ZERO = 0;
    static const bool SIGNED = true;
    static __device__ int low_at(int) { return 1; }
    static __device__ u32 codes(u32 low, u32, int, int k) {
        return look_up(low >> k / 4 * 4 & 0x0f0f0f0fu, 0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu);
    }
    static __device__ void scales(Scale (&runs)[2], const u8 *block, int, const SeparateScales &, u64, u32) {
        // 2^(e - 128); the smallest two are subnormal.
        const u32 e = *block;
        runs[0] = runs[1] = {__uint_as_float(e < 2 ? 0x00200000u << e : (e - 1) << 23), 0};
    }
};

// 8 bits with a scale per row.
struct int8_rows : q8_0 {
    static const int BYTES = 32, ALIGN = 16;
    static const bool SEPARATE_SCALES = true;
    static __device__ int low_at(int) { return 0; }
    static __device__ u32 separate(const SeparateScales &separate, u64 row, u32) { return ((const u32 *)separate.scales)[row]; }
    static __device__ Scale scale(u32 bits) { return {__uint_as_float(bits), 0}; }
    static __device__ void scales(Scale (&runs)[2], const u8 *, int, const SeparateScales &from, u64 row, u32 unit) {
        runs[0] = runs[1] = scale(separate(from, row, unit));
    }
};

// 4 bits, packed like Q4_0, with a scale per group of units, and a zero point: 8 unless given.
struct int4_groups : q4_0 {
    static const int BYTES = 16, ALIGN = 16, ZERO = 0;
    static const bool MINIMUM = true, SEPARATE_SCALES = true;
    static __device__ int low_at(int) { return 0; }
    static __device__ u32 separate(const SeparateScales &separate, u64 row, u32 unit) {
        const u64 group = row * separate.groups.in_row + (unit >> separate.groups.shift);
        return ((const u16 *)separate.scales)[group] | (u32)(separate.zeros ? separate.zeros[group] : 8) << 16;
    }
    static __device__ Scale scale(u32 bits) {
        const f16 half = {(u16)bits};
        const f32 d = widen(half);
        return {d, -d * byte_of(bits, 2, 0)};
    }
    static __device__ void scales(Scale (&runs)[2], const u8 *, int, const SeparateScales &from, u64 row, u32 unit) {
        runs[0] = runs[1] = scale(separate(from, row, unit));
    }
};

template <class F> __device__ constexpr int units_of() { return F::BLOCK / 32; }

// Four codes minus ZERO as floats; exact.
template <class F> __device__ inline void to_floats(u32 codes, f32 (&values)[4]) {
    if (F::SIGNED) codes ^= 0x80808080u;
#pragma unroll
    for (int i = 0; i < 4; ++i) values[i] = byte_of(codes, i, F::SIGNED ? 128 : F::ZERO);
}

// COUNT consecutive words. In shared memory they are read as wide as aligned, with up to a word around them; elsewhere only if that stays
// within the block or aligned memory before it.
template <class F, int COUNT, bool SHARED> struct Words {
    u32 at[COUNT ? COUNT : 1];
    // `place` tells the alignment of `from`: its low bits, or those of its offset from an aligned address.
    __device__ inline void load(const u8 *from, u32 place) {
        if constexpr (COUNT == 0) {
            at[0] = 0;
        } else if constexpr (SHARED && F::ALIGN >= 16 && COUNT % 4 == 0) {
#pragma unroll
            for (int k = 0; k < COUNT; k += 4) {
                const uint4 four = *(const uint4 *)(from + 4 * k);
                at[k] = four.x, at[k + 1] = four.y, at[k + 2] = four.z, at[k + 3] = four.w;
            }
        } else if constexpr (F::ALIGN >= 4) {
#pragma unroll
            for (int k = 0; k < COUNT; ++k) at[k] = *(const u32 *)(from + 4 * k);
        } else if constexpr (F::ALIGN == 1 && SHARED) {
            const u32 odd = place & 3u;
            const u32 *words = (const u32 *)(from - odd);
#pragma unroll
            for (int k = 0; k < COUNT; ++k) at[k] = __funnelshift_r(words[k], words[k + 1], odd * 8);
        } else if constexpr (F::ALIGN == 1) {
#pragma unroll
            for (int k = 0; k < COUNT; ++k) {
                const u8 *four = from + 4 * k;
                at[k] = four[0] | (u32)four[1] << 8 | (u32)four[2] << 16 | (u32)four[3] << 24;
            }
        } else if constexpr (SHARED || F::OVERREAD_OK) {
            const u32 odd = place & 2u, take = odd ? 0x5432u : 0x3210u;
            const u32 *words = (const u32 *)(from - odd);
            u32 word = words[0];
#pragma unroll
            for (int k = 0; k < COUNT; ++k) {
                const u32 next = words[k + 1];
                at[k] = __byte_perm(word, next, take);
                word = next;
            }
        } else {
#pragma unroll
            for (int k = 0; k < COUNT; ++k) at[k] = *(const u16 *)(from + 4 * k) | (u32)*(const u16 *)(from + 4 * k + 2) << 16;
        }
    }
};

// The words of a unit for COUNT words of codes of each run: k to k + COUNT - 1, and as many of the second run.
template <class F, int COUNT, bool SHARED> struct Unit {
    static constexpr int HIGH = F::HIGH < COUNT ? F::HIGH : COUNT;
    Words<F, COUNT, SHARED> low, more;
    Words<F, HIGH, SHARED> high;
    __device__ inline void load(const u8 *block, u32 place, int unit, int k = 0) {
        const int low_at = F::low_at(unit) + 4 * k, high_at = F::high_at(unit) + (F::HIGH > 1 ? 4 * k : 0);
        low.load(block + low_at, place + low_at);
        if (F::LOW == 8) more.load(block + low_at + 16, place + low_at);
        high.load(block + high_at, place + high_at);
    }
    // Word i of a run's codes.
    __device__ inline u32 codes(int unit, int run, int i, int k = 0) const {
        return F::codes(F::LOW == 8 && run ? more.at[i] : low.at[i], high.at[F::HIGH > 1 ? i : 0], unit, 4 * run + k + i);
    }
};
