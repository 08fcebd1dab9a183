// Quantized matrix-vector product: out[v] = W · x[v], VECTORS at a time.
//
// A wave has ROWS rows at a time and iterates over chunks of 64 units. Blocks have odd sizes, so chunks go through shared memory: they are
// copied as 16-byte vectors (4, 2 or 1 bytes if rows are not aligned), STAGES chunks ahead. The activations are in shared memory too, all of
// them if they fit, otherwise a panel of columns at a time.
//
// U is the type of x: f32, f16 and bf16 are computed as f32; q8_1 blocks as integers.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME gemv_q4_0_f32_f32
#define T q4_0
#define U f32
#define V f32
#define ROWS 2
#define VECTORS 1
#define STAGES 1
#define THREADS 256
#define UNROLL 1
#endif

#include "quant/blocks.cuh"

#define CHUNK 64

struct GemvParams {
    // Row pitch of the weights in bytes; row and column strides of x and of the result in elements.
    u64 weights_row, x_row, x_stride, out_row, out_stride;
    u32 rows, units, vectors;
    // Units of a panel (whole chunks), and bytes per copy.
    u32 panel, width;
    // Blocks that share the rows; as many more for each VECTORS vectors. Whether vectors are contiguous and aligned to 16 bytes.
    u32 blocks, wide;
};

// Copies bytes from global to shared memory asynchronously.
template <int BYTES> __device__ inline void copy_async(u8 *to, const u8 *from) {
#if !defined(__AMDGCN__) && __CUDA_ARCH__ >= 800
    const u32 at = (u32)__cvta_generic_to_shared(to);
    if constexpr (BYTES == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
        return;
    } else if constexpr (BYTES == 4) {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at), "l"(from) : "memory");
        return;
    }
#endif
    if constexpr (BYTES == 16) *(uint4 *)to = *(const uint4 *)from;
    if constexpr (BYTES == 4) *(u32 *)to = *(const u32 *)from;
    if constexpr (BYTES == 2) *(u16 *)to = *(const u16 *)from;
    if constexpr (BYTES == 1) *to = *from;
}
__device__ inline void end_copies() {
#if !defined(__AMDGCN__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int PENDING> __device__ inline void wait_copies() {
#if !defined(__AMDGCN__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#endif
}
template <int BYTES> __device__ inline void copy_row(u8 *to, const u8 *from, int bytes, int lane) {
#pragma unroll 1
    for (int at = lane * BYTES; at < bytes; at += WAVE * BYTES) copy_async<BYTES>(to + at, from + at);
}

// Activations in shared memory: 32 floats of each vector, or its Q8_1 block, then the next 32 columns; padded against bank conflicts.
template <class X> struct Vectors {
    // Bytes of 32 columns, and of one.
    static constexpr int UNIT = VECTORS * 128 + 16, EACH = 4;
    static __device__ void fill(u8 *smem, const void *from, const GemvParams &p, u32 vector0, u32 unit0, u32 units) {
        const int WIDTH = 16 / sizeof(X);
        union Vec16 { uint4 raw; X at[WIDTH]; __device__ Vec16() {} };
#pragma unroll 1
        for (u32 v = 0; v < VECTORS; ++v) {
            const u32 vector = vector0 + v < p.vectors ? vector0 + v : p.vectors - 1;
            const X *x = (const X *)from + vector * p.x_row + (u64)unit0 * 32 * p.x_stride;
            u8 *to = smem + v * 128;
            if (p.wide) {
#pragma unroll 4
                for (u32 i = threadIdx.x; i < units * (32 / WIDTH); i += THREADS) {
                    Vec16 piece;
                    piece.raw = ((const uint4 *)x)[i];
                    const u32 at = i * WIDTH;
#pragma unroll
                    for (int k = 0; k < WIDTH; k += 4) {
                        const float4 four = {widen(piece.at[k]), widen(piece.at[k + 1]), widen(piece.at[k + 2]), widen(piece.at[k + 3])};
                        *(float4 *)(to + at / 32 * UNIT + (at % 32 + k) * 4) = four;
                    }
                }
            } else {
                for (u32 i = threadIdx.x; i < units * 32; i += THREADS) *(f32 *)(to + i / 32 * UNIT + i % 32 * 4) = widen(x[i * p.x_stride]);
            }
        }
    }
};
template <> struct Vectors<q8_1> {
    static constexpr int UNIT = (VECTORS * 9 | 1) * 4, EACH = 1;
    static __device__ void fill(u8 *smem, const void *from, const GemvParams &p, u32 vector0, u32 unit0, u32 units) {
#pragma unroll 1
        for (u32 v = 0; v < VECTORS; ++v) {
            const u32 vector = vector0 + v < p.vectors ? vector0 + v : p.vectors - 1;
            const u32 *x = (const u32 *)((const u8 *)from + vector * p.x_row) + (u64)unit0 * 9;
            // A single vector is copied as it is.
            const u32 words = units * 9, pieces = VECTORS == 1 && p.wide ? words / 4 : 0;
#pragma unroll 4
            for (u32 i = threadIdx.x; i < pieces; i += THREADS) ((uint4 *)smem)[i] = ((const uint4 *)x)[i];
            for (u32 i = pieces * 4 + threadIdx.x; i < words; i += THREADS) *(u32 *)(smem + i / 9 * UNIT + v * 36 + i % 9 * 4) = x[i];
        }
    }
};

// Bytes from a unit's first run to its second, in the activations.
template <class F, class X> __device__ constexpr int gap_bytes() { return F::GAP < 32 ? F::GAP * 4 : F::GAP / 32 * Vectors<X>::UNIT; }

// Accumulates a unit's dot products; x points to its first run.
template <class F, class X> struct Dot {
    static __device__ inline void add(f32 (&sums)[ROWS][VECTORS], const Unit<F, 4, true> (&units)[ROWS], const Scale (&scales)[ROWS][2],
                                      int unit, const u8 *x) {
#pragma unroll
        for (int run = 0; run < 2; ++run) {
            f32 dots[ROWS][VECTORS], all[VECTORS];
#pragma unroll
            for (int v = 0; v < VECTORS; ++v) {
                all[v] = 0;
#pragma unroll
                for (int r = 0; r < ROWS; ++r) dots[r][v] = 0;
            }
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                float4 some[VECTORS];
#pragma unroll
                for (int v = 0; v < VECTORS; ++v) {
                    some[v] = *(const float4 *)(x + run * gap_bytes<F, X>() + v * 128 + k * 16);
                    if (F::MINIMUM) all[v] += (some[v].x + some[v].y) + (some[v].z + some[v].w);
                }
#pragma unroll
                for (int r = 0; r < ROWS; ++r) {
                    f32 codes[4];
                    to_floats<F>(units[r].codes(unit, run, k), codes);
#pragma unroll
                    for (int v = 0; v < VECTORS; ++v) {
                        dots[r][v] = fmaf(codes[0], some[v].x, dots[r][v]);
                        dots[r][v] = fmaf(codes[1], some[v].y, dots[r][v]);
                        dots[r][v] = fmaf(codes[2], some[v].z, dots[r][v]);
                        dots[r][v] = fmaf(codes[3], some[v].w, dots[r][v]);
                    }
                }
            }
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
#pragma unroll
                for (int v = 0; v < VECTORS; ++v) {
                    sums[r][v] = fmaf(scales[r][run].d, dots[r][v], sums[r][v]);
                    if (F::MINIMUM) sums[r][v] = fmaf(scales[r][run].m, all[v], sums[r][v]);
                }
            }
        }
    }
};
template <class F> struct Dot<F, q8_1> {
    static __device__ inline void add(f32 (&sums)[ROWS][VECTORS], const Unit<F, 4, true> (&units)[ROWS], const Scale (&scales)[ROWS][2],
                                      int unit, const u8 *x) {
        // Consecutive runs are one block of x with one scale.
        constexpr int WORDS = F::GAP == 16 ? 8 : 4;
        // Offset of the first run in its block.
        const int inside = F::first(unit) % 32;
#pragma unroll
        for (int run = 0; run < 8 / WORDS; ++run) {
#pragma unroll
            for (int v = 0; v < VECTORS; ++v) {
                const u8 *codes = x + run * gap_bytes<F, q8_1>() + v * 36 + 4;
                const f32 d = half_at(codes - 4 - inside);
                u32 some[WORDS];
                i32 all = 0;
#pragma unroll
                for (int k = 0; k < WORDS; ++k) {
                    some[k] = *(const u32 *)(codes + 4 * k);
                    if (F::MINIMUM || F::ZERO) all = dot4(some[k], 0x01010101u, all);
                }
#pragma unroll
                for (int r = 0; r < ROWS; ++r) {
                    i32 dot = -F::ZERO * all;
#pragma unroll
                    for (int k = 0; k < WORDS; ++k) dot = dot4(units[r].codes(unit, run + k / 4, k % 4), some[k], dot);
                    f32 value = scales[r][run].d * (f32)dot;
                    if (F::MINIMUM) value = fmaf(scales[r][run].m, (f32)all, value);
                    sums[r][v] = fmaf(d, value, sums[r][v]);
                }
            }
        }
    }
};

template <class F> __device__ constexpr int chunk_bytes() { return CHUNK / units_of<F>() * F::BYTES; }

// Copies chunks of ROWS rows; beyond the last row, the last is repeated.
template <class F> struct Prefetcher {
    const u8 *weights, *from[ROWS];
    u8 *ring;
    u32 group, chunk, stage;

    __device__ inline void begin(const GemvParams &p) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const u32 wanted = group * ROWS + r, row = wanted < p.rows ? wanted : p.rows - 1;
            from[r] = weights + row * p.weights_row;
        }
        chunk = 0;
    }
    __device__ inline void fetch(const GemvParams &p, u32 chunks, u32 step, int lane) {
        const u32 left = p.units - chunk * CHUNK;
        u8 *to = ring + stage * ROWS * chunk_bytes<F>();
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            if (p.width == 16 && left >= CHUNK) {
#pragma unroll
                for (int at = 0; at < chunk_bytes<F>(); at += WAVE * 16) {
                    if (at + lane * 16 < chunk_bytes<F>()) copy_async<16>(to + at + lane * 16, from[r] + at + lane * 16);
                }
            } else {
                const int bytes = (left < CHUNK ? left : CHUNK) / units_of<F>() * F::BYTES;
                if (p.width == 16) copy_row<16>(to, from[r], bytes, lane);
                else if (p.width == 4) copy_row<4>(to, from[r], bytes, lane);
                else if (F::ALIGN > 1 || p.width == 2) copy_row<2>(to, from[r], bytes, lane);
                else copy_row<1>(to, from[r], bytes, lane);
            }
            from[r] += chunk_bytes<F>();
            to += chunk_bytes<F>();
        }
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        if (++chunk == chunks) {
            group += step;
            begin(p);
        }
    }
};

// Separate scales of a chunk's units.
template <class F> struct NextScales {
    u32 bits[F::SEPARATE_SCALES ? CHUNK / WAVE : 1][ROWS];
    __device__ inline void load(const SeparateScales &separate, const GemvParams &p, u32 row0, u32 unit0, int lane) {
        if (!F::SEPARATE_SCALES) return;
#pragma unroll
        for (int i = 0; i < CHUNK / WAVE; ++i) {
            const u32 wanted = unit0 + i * WAVE + lane, unit = wanted < p.units ? wanted : p.units - 1;
#pragma unroll
            for (int r = 0; r < ROWS; ++r) bits[i][r] = F::separate(separate, row0 + r < p.rows ? row0 + r : p.rows - 1, unit);
        }
    }
};

template <class F, class X, class R>
__device__ inline void gemv(R *out, const u8 *weights, SeparateScales separate, const void *x, const GemvParams &p, u8 *smem) {
    const int lane = threadIdx.x % WAVE, wave = threadIdx.x / WAVE, waves = THREADS / WAVE;
    const u32 vector0 = blockIdx.x / p.blocks * VECTORS, groups = (p.rows + ROWS - 1) / ROWS, step = p.blocks * waves;
    const u32 chunks = (p.units + CHUNK - 1) / CHUNK, rounds = (groups + step - 1) / step;
    const u32 panel_chunks = p.panel / CHUNK, items = rounds * chunks;
    // Waves without rows take part too: all meet at the barriers.
    const u32 group0 = blockIdx.x % p.blocks * waves + wave;
    u8 *ring = smem + p.panel * Vectors<X>::UNIT + wave * STAGES * ROWS * chunk_bytes<F>();
    Prefetcher<F> prefetcher;
    prefetcher.weights = weights, prefetcher.ring = ring, prefetcher.group = group0, prefetcher.stage = 0;
    prefetcher.begin(p);
#pragma unroll 1
    for (u32 i = 0; i < STAGES - 1; ++i) {
        if (i < items) prefetcher.fetch(p, chunks, step, lane);
        end_copies();
    }
    // A lane's unit has the same position in its block in all chunks, BLOCKS blocks apart.
    constexpr int BLOCKS = WAVE / units_of<F>();
    static_assert(BLOCKS * F::BYTES % 4 == 0, "a lane's words are aligned alike");
    const int unit = lane % units_of<F>();
    const u32 in_chunk = lane / units_of<F>() * F::BYTES;
    const u32 in_vectors = (lane / units_of<F>() * units_of<F>() + F::first(unit) / 32) * Vectors<X>::UNIT + F::first(unit) % 32 * Vectors<X>::EACH;
    NextScales<F> next;
    next.load(separate, p, group0 * ROWS, 0, lane);
    u32 stage = 0, item = STAGES - 1;
#pragma unroll 1
    for (u32 round = 0; round < rounds; ++round) {
        const u32 row0 = (group0 + round * step) * ROWS;
        f32 sums[ROWS][VECTORS];
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
#pragma unroll
            for (int v = 0; v < VECTORS; ++v) sums[r][v] = 0;
        }
        u32 in_panel = 0;
#pragma unroll 1
        for (u32 chunk = 0; chunk < chunks; ++chunk, ++item) {
            if (in_panel == 0 && (round == 0 || chunks > panel_chunks)) {
                const u32 unit0 = chunk * CHUNK, left = p.units - unit0;
                __syncthreads();
                Vectors<X>::fill(smem, x, p, vector0, unit0, left < p.panel ? left : p.panel);
                __syncthreads();
            }
            if (item < items) prefetcher.fetch(p, chunks, step, lane);
            end_copies();
            const u32 left = p.units - chunk * CHUNK, units = left < CHUNK ? left : CHUNK;
            // Separate scales are loaded one chunk ahead too.
            const NextScales<F> now = next;
            const bool last = chunk + 1 == chunks;
            next.load(separate, p, last ? row0 + step * ROWS : row0, last ? 0 : (chunk + 1) * CHUNK, lane);
            wait_copies<STAGES - 1>();
            __syncwarp();
            const u8 *staged = ring + stage * ROWS * chunk_bytes<F>();
            constexpr int AT_ONCE = F::SEPARATE_SCALES ? CHUNK / WAVE : UNROLL;
#pragma unroll AT_ONCE
            for (int i = 0; i < CHUNK / WAVE; ++i) {
                const u32 u = i * WAVE + lane;
                if (u >= units) break;
                Unit<F, 4, true> data[ROWS];
                Scale scales[ROWS][2];
#pragma unroll
                for (int r = 0; r < ROWS; ++r) {
                    const u8 *from = staged + in_chunk + (r * chunk_bytes<F>() + i * BLOCKS * F::BYTES);
                    data[r].load(from, in_chunk, unit);
                    if (F::SEPARATE_SCALES) scales[r][0] = scales[r][1] = F::scale(now.bits[i][r]);
                    else F::scales(scales[r], from, unit, separate, 0, 0);
                }
                Dot<F, X>::add(sums, data, scales, unit, smem + in_vectors + (in_panel * CHUNK + i * WAVE) * Vectors<X>::UNIT);
            }
            __syncwarp();
            stage = stage + 1 == STAGES ? 0 : stage + 1;
            in_panel = in_panel + 1 == panel_chunks ? 0 : in_panel + 1;
        }
        // Lanes exchange halves of their sums until each has one; then equal ones are added.
        f32 own[ROWS * VECTORS];
#pragma unroll
        for (int i = 0; i < ROWS * VECTORS; ++i) own[i] = sums[i / VECTORS][i % VECTORS];
#pragma unroll
        for (int step = 0; step < 5; ++step) {
            const int half = ROWS * VECTORS >> (step + 1);
#pragma unroll
            for (int i = 0; i < ROWS * VECTORS / 2; ++i) {
                if (i >= half) break;
                const bool upper = lane & half;
                const f32 kept = upper ? own[i + half] : own[i], given = upper ? own[i] : own[i + half];
                own[i] = kept + __shfl_xor_sync(0xffffffffu, given, half);
            }
        }
#pragma unroll
        for (int apart = ROWS * VECTORS; apart < WAVE; apart *= 2) own[0] += __shfl_xor_sync(0xffffffffu, own[0], apart);
        const u32 row = row0 + lane / VECTORS, vector = vector0 + lane % VECTORS;
        if (lane < ROWS * VECTORS && row < p.rows && vector < p.vectors) out[vector * p.out_row + row * p.out_stride] = Narrow<R>::from(own[0]);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
NAME(V *out, const u8 *weights, const void *scales, const u8 *zeros, Groups groups, const void *x, GemvParams p) {
    extern __shared__ uint4 smem[];
    gemv<T, U, V>(out, weights, SeparateScales{scales, zeros, groups}, x, p, (u8 *)smem);
}
