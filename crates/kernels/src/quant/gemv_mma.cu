// Quantized matrix-vector product on NVIDIA's matrix units: out[v] = W · x[v].
//
// 256 columns are a chunk. A single float vector is split into digits: its part of a chunk becomes 46-bit fixed point, with a last bit of
// at most 2^-43 of the largest, in six int8 digits. An mma multiplies 16 rows of codes by these digits, six of its eight columns; the
// integer result is exact, and converted to float when it is scaled. With up to eight vectors of Q8_1, each is a column.
//
// A block has 16 rows at a time, a tile; its waves share the columns and combine their sums after several tiles, so that they rarely wait
// for each other. Each wave copies its chunks to shared memory, STAGES ahead.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME gemv_q4_0_f32_f32
#define T q4_0
#define U f32
#define V f32
#define VECTORS 1
#define THREADS 256
#define STAGES 2
#endif

#include "quant/gemv_mma.cuh"

#if !defined(__AMDGCN__) && __CUDA_ARCH__ >= 800

// Used columns of the mma, and bytes of a unit in them.
#define COLUMNS (VECTORS == 1 ? 6 : 8)
#define DIGITS (32 * COLUMNS)
// Tiles whose sums are buffered before waves combine them.
#define TILES_PER_REDUCE (VECTORS == 1 ? 8 : 1)
// Sums per lane: of two rows, for one or two vectors.
#define SUMS_PER_LANE (VECTORS == 1 ? 2 : 4)

// Buffers in shared memory.
struct SharedBuffers {
    u8 *digits;
    // Scale of the digits, per chunk, or per unit and vector. Sum of x per unit (and vector).
    f32 *counts, *sums;
    f32 *parts;
    u8 *ring;
};

// Offset of the digits of a word of x.
template <class F> __device__ inline u32 offset(u32 word) {
    const u32 at = ChunkLayout<F>::offset(word);
    return at / 32 * DIGITS + at % 32;
}

// Splits a chunk of x into digits, by a wave.
template <class F> __device__ inline void split_digits(const SharedBuffers &buffers, const f32 (&values)[2][4], u32 chunk, int lane) {
    u32 most = 0;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const u32 size = __float_as_uint(values[j][i]) & 0x7fffffffu;
            most = size > most ? size : most;
        }
        if (F::MINIMUM && !F::SEPARATE_SCALES) {
            f32 sum = (values[j][0] + values[j][1]) + (values[j][2] + values[j][3]);
#pragma unroll
            for (int by = 1; by < 8; by *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, by);
            if (lane % 8 == 0) buffers.sums[chunk * UNITS + j * 4 + lane / 8] = sum;
        }
    }
#pragma unroll
    for (int by = 1; by < 32; by *= 2) {
        const u32 other = __shfl_xor_sync(0xffffffffu, most, by);
        most = other > most ? other : most;
    }
    // Scales the largest below 2^30, unless its exponent is too small.
    const u32 exponent = most >> 23 > 30 ? most >> 23 : 30;
    const f32 up = __uint_as_float((283 - exponent) << 23);
    // NaN or infinity makes the scale NaN.
    if (lane == 0) buffers.counts[chunk] = most >= 0x7f800000u ? __uint_as_float(0x7fffffffu) : __uint_as_float((exponent - 29) << 23);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
        u32 upper[4], lower[4], digits[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const f32 scaled = values[j][i] * up, whole = rintf(scaled);
            // Signed digits: values above 127 wrap to negative, with a carry into the next digit.
            upper[i] = ((u32)(i32)whole + 0x00808080u) ^ 0x00808080u;
            lower[i] = ((u32)(i32)rintf((scaled - whole) * 16384.0f) + 0x80u) ^ 0x80u;
        }
        u8 *to = buffers.digits + chunk * UNITS * DIGITS + offset<F>(j * 32 + lane);
        transpose_bytes(upper, digits);
#pragma unroll
        for (int k = 0; k < 4; ++k) *(u32 *)(to + 32 * k) = digits[3 - k];
        transpose_bytes(lower, digits);
        *(u32 *)(to + 128) = digits[1];
        *(u32 *)(to + 160) = digits[0];
    }
}

// Arranges the vectors of Q8_1 as columns, each wave its chunks; beyond the last vector, the last is repeated.
template <class F> __device__ inline void gather(const SharedBuffers &buffers, const u8 *x, const GemvParams &p, u32 chunks, u32 wave, int lane) {
#pragma unroll 1
    for (u32 chunk = wave; chunk < chunks; chunk += WAVES) {
        const u32 units = p.units - chunk * UNITS, there = units < UNITS ? units : UNITS;
        const u8 *from = x + (u64)chunk * UNITS * 36;
        u8 *to = buffers.digits + chunk * UNITS * DIGITS;
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const u32 word = j * 32 + lane;
            if (word >= there * 8) break;
            u32 codes[8];
#pragma unroll
            for (int v = 0; v < 8; ++v) {
                codes[v] = *(const u32 *)(from + (v < p.vectors ? v : p.vectors - 1) * p.x_row + word / 8 * 36 + 4 + word % 8 * 4);
            }
#pragma unroll
            for (int v = 0; v < 8; ++v) *(u32 *)(to + offset<F>(word) + v * 32) = codes[v];
        }
        // Two blocks per lane.
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const u32 unit = j * 4 + lane / 8, v = lane % 8, at = (chunk * UNITS + unit) * 8 + v;
            if (unit >= there) break;
            const u32 *block = (const u32 *)(from + (v < p.vectors ? v : p.vectors - 1) * p.x_row + unit * 36);
            const f16 d = {(u16)block[0]};
            buffers.counts[at] = widen(d);
            if (F::MINIMUM && !F::SEPARATE_SCALES) {
                i32 sum = 0;
#pragma unroll
                for (int i = 1; i < 9; ++i) sum = dot4(block[i], 0x01010101u, sum);
                buffers.sums[at] = widen(d) * (f32)sum;
            }
        }
    }
}

// A lane's sums within a chunk, of rows g and g + 8.
struct Digits {
    const u8 *digits;
    const f32 *sums;
    // Scale of the lane's digits.
    f32 count;
    int lane;
    f32 parts[2], least[2];
    i32 whole[2][2];

    __device__ inline Digits(const SharedBuffers &buffers, u32 chunk, int lane) : lane(lane) {
        const int t = lane % 4;
        // Two of the eight columns are duplicates and count 0.
        digits = buffers.digits + chunk * UNITS * DIGITS + lane / 4 % COLUMNS * 32 + t * 8;
        sums = buffers.sums + chunk * UNITS;
        count = buffers.counts[chunk] * (t == 0 ? 65536.0f : t == 1 ? 1.0f : t == 2 ? 1.0f / 16384 : 0.0f);
#pragma unroll
        for (int r = 0; r < 2; ++r) parts[r] = least[r] = 0, whole[r][0] = whole[r][1] = 0;
    }
    // The lane's part of a unit of x.
    __device__ inline uint2 unit(int u) const { return *(const uint2 *)(digits + u * DIGITS); }
    // Adds a scaled product at unit u of x; one with an integer scale; and the contribution of a minimum.
    __device__ inline void add(int, int r, f32 d, const i32 (&c)[4]) { parts[r] = fmaf(d, (f32)(c[2 * r] * 256 + c[2 * r + 1]), parts[r]); }
    __device__ inline void add(int, int r, i32 d, const i32 (&c)[4]) { whole[r][0] += d * c[2 * r], whole[r][1] += d * c[2 * r + 1]; }
    __device__ inline void add_least(int u, int r, f32 m) { least[r] = fmaf(m, sums[u], least[r]); }
    // Each lane has two of eight units.
    __device__ inline void add_least(int r, f32 m, u32 lower, u32 upper) {
        const int t = lane % 4;
        const u32 two = (t < 2 ? lower : upper) >> t % 2 * 16;
        least[r] = m * fmaf(byte_of(two, 0, 0), sums[2 * t], byte_of(two, 1, 0) * sums[2 * t + 1]);
    }
    // Adds the sums, times d; minima come from one lane, or from all.
    __device__ inline void end(f32 (&own)[SUMS_PER_LANE], int r, f32 d, bool all) const {
        own[r] = fmaf(d * count, parts[r] + fmaf((f32)whole[r][0], 256.0f, (f32)whole[r][1]), own[r]);
        if (all || lane % 4 == 0) own[r] += least[r];
    }
};
struct Columns {
    const u8 *digits;
    const f32 *counts, *sums;
    f32 parts[2][2], least[2][2];

    __device__ inline Columns(const SharedBuffers &buffers, u32 chunk, int lane) {
        digits = buffers.digits + chunk * UNITS * DIGITS + lane / 4 * 32 + lane % 4 * 8;
        counts = buffers.counts + chunk * UNITS * 8 + lane % 4 * 2;
        sums = buffers.sums + chunk * UNITS * 8 + lane % 4 * 2;
#pragma unroll
        for (int r = 0; r < 2; ++r) parts[r][0] = parts[r][1] = least[r][0] = least[r][1] = 0;
    }
    __device__ inline uint2 unit(int u) const { return *(const uint2 *)(digits + u * DIGITS); }
    __device__ inline void add(int u, int r, f32 d, const i32 (&c)[4]) {
        const float2 each = *(const float2 *)(counts + u * 8);
        parts[r][0] = fmaf(d * each.x, (f32)c[2 * r], parts[r][0]);
        parts[r][1] = fmaf(d * each.y, (f32)c[2 * r + 1], parts[r][1]);
    }
    __device__ inline void add(int u, int r, i32 d, const i32 (&c)[4]) {
        const float2 each = *(const float2 *)(counts + u * 8);
        parts[r][0] = fmaf(each.x, (f32)(d * c[2 * r]), parts[r][0]);
        parts[r][1] = fmaf(each.y, (f32)(d * c[2 * r + 1]), parts[r][1]);
    }
    __device__ inline void add_least(int u, int r, f32 m) {
        const float2 each = *(const float2 *)(sums + u * 8);
        least[r][0] = fmaf(m, each.x, least[r][0]);
        least[r][1] = fmaf(m, each.y, least[r][1]);
    }
    __device__ inline void add_least(int r, f32 m, u32 lower, u32 upper) {
#pragma unroll
        for (int u = 0; u < UNITS; ++u) add_least(u, r, m * byte_of(u < 4 ? lower : upper, u % 4, 0));
    }
    __device__ inline void end(f32 (&own)[SUMS_PER_LANE], int r, f32 d, bool) const {
#pragma unroll
        for (int i = 0; i < 2; ++i) own[2 * r + i] += fmaf(d, parts[r][i], least[r][i]);
    }
};
#if VECTORS == 1
typedef Digits Sums;
#else
typedef Columns Sums;
#endif

// Products of a chunk with 16 staged rows.
template <class F> struct Chunk {
    template <bool ALL> static __device__ inline void units(Sums &sums, const u8 *stage, u32 there, const Groups &groups, int lane) {
        const u8 *rows = stage + lane / 4 * ChunkLayout<F>::STRIDE;
#pragma unroll(ALL ? UNITS : 1)
        for (u32 u = 0; u < (ALL ? UNITS : there); ++u) {
            u32 codes[2][2];
            Scale scales[2];
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                const u8 *block = rows + r * 8 * ChunkLayout<F>::STRIDE + u * F::BYTES;
                Codes<F>::load(codes[r], block, u * F::BYTES, lane % 4);
                Scale two[2];
                // Separate scales are staged after the rows.
                if (F::SEPARATE_SCALES) two[0] = {half_at(stage + 16 * ChunkLayout<F>::STRIDE + (lane / 4 + 8 * r) * 16 + (u >> groups.shift) * 2), 0};
                else F::scales(two, block, 0, SeparateScales{}, 0, 0);
                scales[r] = two[0];
            }
            const uint2 x = sums.unit(u);
            i32 c[4];
            mma(c, codes[0][0], codes[1][0], codes[0][1], codes[1][1], x.x, x.y);
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                sums.add(u, r, scales[r].d, c);
                if (F::MINIMUM && !F::SEPARATE_SCALES) sums.add_least(u, r, scales[r].m);
            }
        }
    }
    static __device__ inline void add(f32 (&own)[SUMS_PER_LANE], Sums sums, const u8 *stage, u32, u32 there, const Groups &groups, int lane) {
        if (there == UNITS) units<true>(sums, stage, there, groups, lane);
        else units<false>(sums, stage, there, groups, lane);
#pragma unroll
        for (int r = 0; r < 2; ++r) sums.end(own, r, 1 / Codes<F>::UNIT_SCALE, false);
    }
};
// The scale is per row and applied at the end.
template <> struct Chunk<int8_rows> {
    static __device__ inline void add(f32 (&own)[SUMS_PER_LANE], Sums sums, const u8 *stage, u32, u32 there, const Groups &, int lane) {
        const u8 *rows = stage + lane / 4 * ChunkLayout<int8_rows>::STRIDE + lane % 4 * 4;
#pragma unroll
        for (u32 u = 0; u < UNITS; ++u) {
            if (u >= there) break;
            const uint2 x = sums.unit(u);
            const u32 *first = (const u32 *)(rows + u * 32), *second = (const u32 *)(rows + 8 * ChunkLayout<int8_rows>::STRIDE + u * 32);
            i32 c[4];
            mma(c, first[0], second[0], first[4], second[4], x.x, x.y);
#pragma unroll
            for (int r = 0; r < 2; ++r) sums.add(u, r, 1, c);
        }
#pragma unroll
        for (int r = 0; r < 2; ++r) sums.end(own, r, 1.0f, false);
    }
};
// 256 weights: scales are 6-bit or 8-bit integers.
template <class F> struct Blocks {
    static __device__ inline void add(f32 (&own)[SUMS_PER_LANE], Sums sums, const u8 *stage, u32, u32, const Groups &, int lane) {
        const int t = lane % 4;
        const u8 *rows = stage + lane / 4 * ChunkLayout<F>::STRIDE;
        u32 ds[2][2];
        f32 scale[2];
        uint2 high[2] = {};
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const u8 *row = rows + r * 8 * ChunkLayout<F>::STRIDE;
            const uint4 head = *(const uint4 *)row;
            ds[r][0] = head.y & 0x3f3f3f3fu;
            ds[r][1] = (head.w & 0x0f0f0f0fu) | (head.y >> 2 & 0x30303030u);
            const f16 d = {(u16)head.x}, m = {(u16)(head.x >> 16)};
            scale[r] = widen(d);
            sums.add_least(r, -widen(m), head.z & 0x3f3f3f3fu, (head.w >> 4 & 0x0f0f0f0fu) | (head.z >> 2 & 0x30303030u));
            if (F::HIGH) high[r] = *(const uint2 *)(row + 16 + t * 8);
        }
#pragma unroll
        for (int two = 0; two < 4; ++two) {
            uint2 low[2];
#pragma unroll
            for (int r = 0; r < 2; ++r) low[r] = *(const uint2 *)(rows + r * 8 * ChunkLayout<F>::STRIDE + F::low_at(0) + two * 32 + t * 8);
#pragma unroll
            for (int part = 0; part < 2; ++part) {
                const int u = two * 2 + part;
                u32 codes[2][2];
#pragma unroll
                for (int r = 0; r < 2; ++r) {
                    codes[r][0] = low[r].x >> 4 * part & 0x0f0f0f0fu, codes[r][1] = low[r].y >> 4 * part & 0x0f0f0f0fu;
                    if (F::HIGH) {
                        codes[r][0] |= (u < 4 ? high[r].x << (4 - u) : high[r].x >> (u - 4)) & 0x10101010u;
                        codes[r][1] |= (u < 4 ? high[r].y << (4 - u) : high[r].y >> (u - 4)) & 0x10101010u;
                    }
                }
                const uint2 x = sums.unit(u);
                i32 c[4];
                mma(c, codes[0][0], codes[1][0], codes[0][1], codes[1][1], x.x, x.y);
#pragma unroll
                for (int r = 0; r < 2; ++r) sums.add(u, r, (i32)__byte_perm(ds[r][u / 4], 0, 0x4440 + u % 4), c);
            }
        }
#pragma unroll
        for (int r = 0; r < 2; ++r) sums.end(own, r, scale[r], true);
    }
};
template <> struct Chunk<q4_k> : Blocks<q4_k> {};
template <> struct Chunk<q5_k> : Blocks<q5_k> {};
template <> struct Chunk<q6_k> {
    static __device__ inline void add(f32 (&own)[SUMS_PER_LANE], Sums sums, const u8 *stage, u32 skew, u32, const Groups &, int lane) {
        const int t = lane % 4;
        const u8 *rows = stage + lane / 4 * ChunkLayout<q6_k>::STRIDE + skew;
#pragma unroll 1
        for (int half = 0; half < 2; ++half) {
            const Q6kRows<ChunkLayout<q6_k>::STRIDE> six(rows, half, t, skew);
#pragma unroll
            for (int unit = 0; unit < 4; ++unit) {
                u32 codes[2][2];
                six.codes(codes, rows, half, unit, t, skew);
                const uint2 x = sums.unit(half * 4 + unit);
                i32 c[2][4];
                mma(c[0], codes[0][0], codes[1][0], x.x);
                mma(c[1], codes[0][1], codes[1][1], x.y);
#pragma unroll
                for (int run = 0; run < 2; ++run) {
#pragma unroll
                    for (int r = 0; r < 2; ++r) sums.add(half * 4 + unit / 2 + run * 2, r, six.scale(r, run, unit), c[run]);
                }
            }
        }
#pragma unroll
        for (int r = 0; r < 2; ++r) sums.end(own, r, half_at(rows + r * 8 * ChunkLayout<q6_k>::STRIDE + 208) * 0.25f, true);
    }
};

template <class F, class X, class R>
__device__ inline void gemv(R *out, const u8 *weights, const SeparateScales &separate, const void *x, const GemvParams &p, u8 *smem) {
    const int lane = threadIdx.x % 32, wave = threadIdx.x / 32;
    const u32 chunks = (p.units + UNITS - 1) / UNITS, tiles = (p.rows + 15) / 16, rounds = (tiles - blockIdx.x + gridDim.x - 1) / gridDim.x;
    const u32 mine = chunks > wave ? (chunks - wave + WAVES - 1) / WAVES : 0, items = rounds * mine;
    SharedBuffers buffers;
    buffers.digits = smem;
    buffers.sums = (f32 *)(smem + chunks * UNITS * DIGITS);
    buffers.counts = buffers.sums + (F::MINIMUM && !F::SEPARATE_SCALES ? chunks * UNITS * VECTORS : 0);
    buffers.parts = buffers.counts + (VECTORS == 1 ? (chunks + 3) / 4 * 4 : chunks * UNITS * VECTORS);
    buffers.ring = (u8 *)(buffers.parts + TILES_PER_REDUCE * WAVES * 16 * VECTORS) + wave * STAGES * stage_bytes<F>();
    Prefetcher<F> prefetcher(weights, buffers.ring, p, separate, wave, lane);
    pdl_launch_dependents();
    if (!p.prefetchable) pdl_wait();
#pragma unroll 1
    for (u32 i = 0; i < STAGES - 1; ++i) {
        if (i < items) prefetcher.fetch(p, separate, chunks, wave, lane);
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    // While the copies are in flight.
    pdl_wait();
#if VECTORS == 1
    // Several loads in flight: the first has the full latency.
    for (u32 chunk = wave; chunk < chunks; chunk += 4 * WAVES) {
        f32 values[4][2][4];
#pragma unroll
        for (int i = 0; i < 4; ++i) load_x<X>(values[i], x, p, chunk + i * WAVES, lane);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (chunk + i * WAVES < chunks) split_digits<F>(buffers, values[i], chunk + i * WAVES, lane);
        }
    }
#else
    gather<F>(buffers, (const u8 *)x, p, chunks, wave, lane);
#endif
    __syncwarp();
    u32 stage = 0, item = STAGES - 1;
#pragma unroll 1
    for (u32 round = 0; round < rounds; ++round) {
        f32 own[SUMS_PER_LANE];
#pragma unroll
        for (int i = 0; i < SUMS_PER_LANE; ++i) own[i] = 0;
#pragma unroll 1
        for (u32 chunk = wave; chunk < chunks; chunk += WAVES, ++item) {
            if (item < items) prefetcher.fetch(p, separate, chunks, wave, lane);
            asm volatile("cp.async.commit_group;" ::: "memory");
            asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 1) : "memory");
            __syncwarp();
            const u32 left = p.units - chunk * UNITS;
            Chunk<F>::add(own, Sums(buffers, chunk, lane), buffers.ring + stage * stage_bytes<F>(), chunk * ChunkLayout<F>::CHUNK % 16,
                          left < UNITS ? left : UNITS, separate.groups, lane);
            __syncwarp();
            stage = stage + 1 == STAGES ? 0 : stage + 1;
        }
        f32 *to = buffers.parts + (round % TILES_PER_REDUCE * WAVES + wave) * 16 * VECTORS;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const int row = lane / 4 + 8 * r;
#if VECTORS == 1
            own[r] += __shfl_xor_sync(0xffffffffu, own[r], 1);
            own[r] += __shfl_xor_sync(0xffffffffu, own[r], 2);
            if (lane % 4 == 0) to[row] = own[r];
#else
            const float2 two = {own[2 * r], own[2 * r + 1]};
            *(float2 *)(to + row * 8 + lane % 4 * 2) = two;
#endif
        }
        if ((round + 1) % TILES_PER_REDUCE && round + 1 < rounds) continue;
        // Waves' sums are added in a fixed order.
        __syncthreads();
        for (u32 i = threadIdx.x; i < (round % TILES_PER_REDUCE + 1) * 16 * VECTORS; i += THREADS) {
            const u32 buffered = i / (16 * VECTORS), offset = i % (16 * VECTORS), vector = offset % VECTORS;
            const u32 row = (blockIdx.x + (round - round % TILES_PER_REDUCE + buffered) * gridDim.x) * 16 + offset / VECTORS;
            if (row >= p.rows || vector >= p.vectors) continue;
            f32 sum = 0;
#pragma unroll
            for (int w = 0; w < WAVES; ++w) sum += buffers.parts[(buffered * WAVES + w) * 16 * VECTORS + offset];
            if (F::SEPARATE_SCALES && !F::MINIMUM) sum *= ((const f32 *)separate.scales)[row];
            out[vector * p.out_row + row * p.out_stride] = Narrow<R>::from(sum);
        }
        __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
NAME(V *out, const u8 *weights, const void *scales, Groups groups, const void *x, GemvParams p) {
    extern __shared__ uint4 smem[];
    gemv<T, U, V>(out, weights, SeparateScales{scales, nullptr, groups}, x, p, (u8 *)smem);
}

#else
extern "C" __global__ void NAME() {}
#endif
