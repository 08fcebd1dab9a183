// Shared by the quantized matrix-vector products on NVIDIA's matrix units. A chunk is 256 columns, eight units. A block has 16 rows at a
// time, a tile; its waves share the chunks and copy theirs to shared memory, STAGES ahead.

#pragma once

#include "common/types.cuh"
#include "quant/blocks.cuh"
#include "common/pdl.cuh"

#if !defined(__AMDGCN__) && __CUDA_ARCH__ >= 800

#define WAVES (THREADS / 32)
#define UNITS 8

struct GemvParams {
    // Row pitch of the weights in bytes; row and column strides of x and of the result in elements.
    u64 weights_row, x_row, x_stride, out_row, out_stride;
    u32 rows, units, vectors;
    // Whether x is contiguous and aligned to 16 bytes.
    u32 wide;
    // Whether weights may be read before the previous kernel ends (PDL).
    u32 prefetchable;
};

template <int BYTES> __device__ inline void copy_async(u32 to, const u8 *from) {
    if constexpr (BYTES == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
    else asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(BYTES) : "memory");
}

// c = a · b: 16 rows by 32 columns of k, times eight columns of digits.
__device__ inline void mma(i32 (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
        : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "r"(0));
}
// With 16 columns of k.
__device__ inline void mma(i32 (&c)[4], u32 a0, u32 a1, u32 b0) {
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %7, %7};"
        : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
        : "r"(a0), "r"(a1), "r"(b0), "r"(0));
}
// c += a · b.
__device__ inline void mma_add(i32 (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
__device__ inline void mma_add(i32 (&c)[4], u32 a0, u32 a1, u32 b0) {
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a0), "r"(a1), "r"(b0));
}

// Loads four consecutive elements of x.
template <class X> struct Source {
    static __device__ inline void load(f32 (&values)[4], const void *from, const GemvParams &p, u32 word) {
        const X *x = (const X *)from + (u64)word * 4 * p.x_stride;
        if (p.wide) {
            struct alignas(4 * sizeof(X)) Four { X at[4]; };
            const Four four = *(const Four *)x;
#pragma unroll
            for (int i = 0; i < 4; ++i) values[i] = widen(four.at[i]);
        } else {
#pragma unroll
            for (int i = 0; i < 4; ++i) values[i] = widen(x[i * p.x_stride]);
        }
    }
};

// How words of weights map to lanes: offset(word) is the corresponding place in x, in units of 32 bytes; bytes of a chunk's row, bytes
// copied, and the row pitch in shared memory, padded against bank conflicts.
template <class F> struct ChunkLayout {
    // Blocks of 32: a lane has word t of both runs of a unit.
    static const int CHUNK = UNITS / (F::BLOCK / 32) * F::BYTES, COPIED = (CHUNK + 15) / 16 * 16;
    static const int STRIDE = COPIED / 16 % 2 ? COPIED : COPIED + 16;
    static __device__ u32 offset(u32 word) { return word / 8 * 32 + word % 4 * 8 + word / 4 % 2 * 4; }
};
struct PairLayout {
    // Blocks of 256: a lane has words 2t and 2t + 1 of 32 weights.
    static __device__ u32 offset(u32 word) { return word / 8 * 32 + word % 8 * 4; }
};
template <> struct ChunkLayout<q4_k> : PairLayout { static const int CHUNK = 144, COPIED = 144, STRIDE = 160; };
template <> struct ChunkLayout<q5_k> : PairLayout { static const int CHUNK = 176, COPIED = 176, STRIDE = 224; };
template <> struct ChunkLayout<q6_k> {
    // Chunks are not aligned to 16 bytes: up to 14 bytes before them are copied too.
    static const int CHUNK = 210, COPIED = 240, STRIDE = 240;
    // A run of 16 together with the one 64 columns later.
    static __device__ u32 offset(u32 word) {
        return (word / 32 * 4 + word / 4 % 4) * 32 + word % 4 * 8 + word / 16 % 2 * 4;
    }
};

template <class F> __device__ constexpr int stage_bytes() { return 16 * ChunkLayout<F>::STRIDE + (F::SEPARATE_SCALES ? 256 : 0); }

// Transposes the bytes of four words.
__device__ inline void transpose_bytes(const u32 (&from)[4], u32 (&to)[4]) {
    const u32 a = __byte_perm(from[0], from[1], 0x5140), b = __byte_perm(from[2], from[3], 0x5140);
    const u32 c = __byte_perm(from[0], from[1], 0x7362), d = __byte_perm(from[2], from[3], 0x7362);
    to[0] = __byte_perm(a, b, 0x5410), to[1] = __byte_perm(a, b, 0x7632);
    to[2] = __byte_perm(c, d, 0x5410), to[3] = __byte_perm(c, d, 0x7632);
}

// Loads a lane's part of a chunk of x.
template <class X> __device__ inline void load_x(f32 (&values)[2][4], const void *x, const GemvParams &p, u32 chunk, int lane) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
        const u32 word = chunk * UNITS * 8 + j * 32 + lane;
#pragma unroll
        for (int i = 0; i < 4; ++i) values[j][i] = 0;
        if (word < p.units * 8) Source<X>::load(values[j], x, p, word);
    }
}

// Word t of both runs of a unit as signed bytes; UNIT_SCALE is the value of 1 in them.
template <class F> struct Codes {
    static constexpr f32 UNIT_SCALE = 1;
    static __device__ inline void load(u32 (&runs)[2], const u8 *block, u32 offset, int t) {
        Words<F, 1, true> low, high;
        low.load(block + F::low_at(0) + 4 * t, offset + F::low_at(0));
        if (F::LOW == 8) {
            high.load(block + F::low_at(0) + 16 + 4 * t, offset + F::low_at(0));
            runs[0] = low.at[0], runs[1] = high.at[0];
        } else {
            if (F::HIGH) high.load(block + F::high_at(0), offset + F::high_at(0));
            runs[0] = F::codes(low.at[0], high.at[0], 0, t), runs[1] = F::codes(low.at[0], high.at[0], 0, 4 + t);
        }
    }
};
// Codes with an offset are kept in the high bits: flipping the top bit makes them signed.
struct UpperNibbles {
    static constexpr f32 UNIT_SCALE = 16;
    static __device__ inline void split(u32 (&runs)[2], u32 word) {
        runs[0] = (word << 4 ^ 0x80808080u) & 0xf0f0f0f0u, runs[1] = (word ^ 0x80808080u) & 0xf0f0f0f0u;
    }
};
template <> struct Codes<q4_0> : UpperNibbles {
    static __device__ inline void load(u32 (&runs)[2], const u8 *block, u32 offset, int t) {
        Words<q4_0, 1, true> low;
        low.load(block + 2 + 4 * t, offset + 2);
        split(runs, low.at[0]);
    }
};
template <> struct Codes<int4_groups> : UpperNibbles {
    static __device__ inline void load(u32 (&runs)[2], const u8 *block, u32, int t) { split(runs, *(const u32 *)(block + 4 * t)); }
};
template <> struct Codes<q5_0> {
    static constexpr f32 UNIT_SCALE = 8;
    static __device__ inline void load(u32 (&runs)[2], const u8 *block, u32 offset, int t) {
        Words<q5_0, 1, true> low, high;
        low.load(block + 6 + 4 * t, offset + 6);
        high.load(block + 2, offset + 2);
        const u32 fifths = high.at[0] >> 4 * t;
        runs[0] = (low.at[0] << 3 & 0x78787878u) | (~((fifths & 15u) * 0x10204080u) & 0x80808080u);
        runs[1] = (low.at[0] >> 1 & 0x78787878u) | (~((fifths >> 16 & 15u) * 0x10204080u) & 0x80808080u);
    }
};

// Copies a wave's chunks, tile by tile; beyond the last row, the last is repeated.
template <class F> struct Prefetcher {
    static const int EACH = ChunkLayout<F>::COPIED / 16, COPIES = (16 * EACH + 31) / 32;
    const u8 *weights, *from, *scales;
    // Source offsets within a tile, and destination offsets within a stage.
    u32 at[COPIES], to[COPIES], ring, tile, chunk, stage;

    __device__ inline void find_rows(const GemvParams &p, u32 last, int lane) {
#pragma unroll
        for (int j = 0; j < COPIES; ++j) {
            const u32 piece = j * 32 + lane, row = piece / EACH < last ? piece / EACH : last;
            at[j] = row * (u32)p.weights_row + piece % EACH * 16;
        }
    }
    __device__ inline Prefetcher(const u8 *weights, u8 *smem, const GemvParams &p, const SeparateScales &separate, u32 wave, int lane) : weights(weights) {
        ring = (u32)__cvta_generic_to_shared(smem), tile = blockIdx.x, stage = 0;
#pragma unroll
        for (int j = 0; j < COPIES; ++j) {
            const int piece = j * 32 + lane;
            to[j] = piece / EACH * ChunkLayout<F>::STRIDE + piece % EACH * 16;
        }
        find_rows(p, 15, lane);
        begin(p, separate, wave, lane);
    }
    __device__ inline void begin(const GemvParams &p, const SeparateScales &separate, u32 wave, int lane) {
        chunk = wave;
        const u32 left = p.rows - tile * 16;
        from = weights + tile * 16 * p.weights_row;
        if (left < 16) find_rows(p, left - 1, lane);
        if (F::SEPARATE_SCALES) {
            const u32 wanted = tile * 16 + lane % 16, row = wanted < p.rows ? wanted : p.rows - 1;
            scales = (const u8 *)separate.scales + (u64)row * separate.groups.in_row * 2;
        }
    }
    __device__ inline void fetch(const GemvParams &p, const SeparateScales &separate, u32 chunks, u32 wave, int lane) {
        const u32 first = chunk * ChunkLayout<F>::CHUNK, start = ChunkLayout<F>::CHUNK % 16 ? first & ~15u : first;
        const u32 base = ring + stage * stage_bytes<F>(), left = (u32)p.weights_row - start;
        if (left >= ChunkLayout<F>::COPIED) {
#pragma unroll
            for (int j = 0; j < COPIES; ++j) {
                if (j * 32 + 32 <= 16 * EACH || j * 32 + lane < 16 * EACH) copy_async<16>(base + to[j], from + start + at[j]);
            }
        } else {
#pragma unroll
            for (int j = 0; j < COPIES; ++j) {
                const u32 piece = j * 32 + lane;
                if (piece < 16 * EACH && piece % EACH * 16 < left) copy_async<16>(base + to[j], from + start + at[j]);
            }
        }
        if (F::SEPARATE_SCALES && F::MINIMUM && lane < 16) {
            const u32 there = base + 16 * ChunkLayout<F>::STRIDE + lane * 16;
            const u32 shift = separate.groups.shift;
            if (shift == 0) copy_async<16>(there, scales + chunk * 16);
            else if (shift == 1) copy_async<8>(there, scales + chunk * 8);
            else copy_async<4>(there, scales + chunk * 4);
        }
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        chunk += WAVES;
        if (chunk >= chunks) {
            tile += gridDim.x;
            begin(p, separate, wave, lane);
        }
    }
};

#endif

// Two rows of q6_k, eight apart, with a pitch of STRIDE bytes: high bits and scales of half a block, for quarter `t` of each word.
template <int STRIDE> struct Q6kRows {
    u32 high[2][2], scales[2][2];
    __device__ inline Q6kRows(const u8 *rows, int half, int t, u32 skew) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const u8 *block = rows + r * 8 * STRIDE;
            Words<q6_k, 2, true> two;
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                Words<q6_k, 1, true> word;
                word.load(block + 128 + half * 32 + i * 16 + 4 * t, skew);
                high[r][i] = word.at[0];
            }
            two.load(block + 192 + half * 8, skew);
            scales[r][0] = two.at[0], scales[r][1] = two.at[1];
        }
    }
    // Codes of a unit of four, times four.
    __device__ inline void codes(u32 (&codes)[2][2], const u8 *rows, int half, int unit, int t, u32 skew) const {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            Words<q6_k, 1, true> low;
            low.load(rows + r * 8 * STRIDE + (half * 4 + unit) * 16 + 4 * t, skew);
            const u32 upper = high[r][unit % 2];
            codes[r][0] = (low.at[0] << 2 & 0x3c3c3c3cu) | ((unit < 2 ? upper << 6 : upper << 4) & 0xc0c0c0c0u);
            codes[r][1] = (low.at[0] >> 2 & 0x3c3c3c3cu) | ((unit < 2 ? upper << 2 : upper) & 0xc0c0c0c0u);
            codes[r][0] ^= 0x80808080u, codes[r][1] ^= 0x80808080u;
        }
    }
    __device__ inline i32 scale(int r, int run, int unit) const { return (i32)(i8)(scales[r][run] >> unit * 8); }
};
