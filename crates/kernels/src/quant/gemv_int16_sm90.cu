// Quantized matrix-vector product with int16 activations, on NVIDIA's matrix units with bulk copies: out[v] = W · x[v].
//
// Each 32 columns of a vector, a unit, are rounded to 16-bit fixed point with a common scale, and split into two int8 digits. An mma
// multiplies 16 rows of codes by eight columns: the two digits of VECTORS vectors, for SLOTS units side by side. Other units' columns are
// zero there, so SLOTS units are accumulated before their sums, each in its own column, are scaled.
//
// A block has 16 rows at a time, a tile, and one chunk of them per wave, a strip. One more wave issues bulk copies of strips to shared
// memory, STAGES ahead. With PDL the first strips load while the previous kernel still runs.

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

#if !defined(__AMDGCN__) && __CUDA_ARCH__ >= 900

#define SLOTS (4 / VECTORS)
// Bytes of a unit's digits.
#define DIGITS (64 * VECTORS)
// Tiles whose sums are buffered before waves combine them.
#define TILES_PER_REDUCE (8 / VECTORS)

// Bytes of a strip's row, and its pitch in shared memory, padded against bank conflicts.
template <class F> struct Strip {
    static const int BYTES = WAVES * ChunkLayout<F>::CHUNK, STRIDE = BYTES + (F::BLOCK == 256 && F::ALIGN == 16 ? 32 : 16);
};

// Buffers in shared memory.
struct SharedBuffers {
    u8 *digits;
    // Scale and sum per unit and vector.
    float2 *units;
    f32 *parts;
    u8 *ring;
    // Barriers per stage: full, and empty.
    u64 *full, *empty;
};

// mbarriers: a phase completes when all arrivals and all expected bytes are in.
__device__ inline u32 at(const void *shared) { return (u32)__cvta_generic_to_shared(shared); }
__device__ inline void init_barrier(u64 *barrier, u32 count) { asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(at(barrier)), "r"(count) : "memory"); }
__device__ inline void arrive(u64 *barrier) { asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(at(barrier)) : "memory"); }
__device__ inline void expect(u64 *barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(at(barrier)), "r"(bytes) : "memory");
}
__device__ inline void wait(u64 *barrier, u32 parity) {
    asm volatile("{\n\t.reg .pred done;\n\tagain%=:\n\tmbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n\t@!done bra again%=;\n\t}"
                 ::"r"(at(barrier)), "r"(parity) : "memory");
}
// Weights are read once: evict them first and keep the rest of the cache.
__device__ inline u64 evict_first_policy() {
    u64 policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
__device__ inline void copy_row(u8 *to, const u8 *from, u32 bytes, u64 *barrier, u64 policy) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;"
                 ::"r"(at(to)), "l"(from), "r"(bytes), "r"(at(barrier)), "l"(policy) : "memory");
}
// Synchronizes the compute waves.
__device__ inline void sync_waves() { asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory"); }

// Quantizes a chunk of x to digits, by a wave.
template <class F> __device__ inline void quantize_chunk(const SharedBuffers &buffers, const f32 (&values)[2][4], u32 chunk, u32 v, int lane) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
        u32 most = 0;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const u32 size = __float_as_uint(values[j][i]) & 0x7fffffffu;
            most = size > most ? size : most;
        }
        f32 sum = (values[j][0] + values[j][1]) + (values[j][2] + values[j][3]);
#pragma unroll
        for (int by = 1; by < 8; by *= 2) {
            const u32 other = __shfl_xor_sync(0xffffffffu, most, by);
            most = other > most ? other : most;
            sum += __shfl_xor_sync(0xffffffffu, sum, by);
        }
        // The largest magnitude is 127 * 256. Tiny values count as 0; NaN or infinity makes the scale NaN.
        const f32 largest = __uint_as_float(most), up = largest > 1e-30f ? 32512.0f / largest : 0;
        const f32 count = most >= 0x7f800000u ? __uint_as_float(0x7fffffffu) : largest * (1 / 32512.0f);
        const u32 word = j * 32 + lane;
        if (lane % 8 == 0) buffers.units[(chunk * UNITS + word / 8) * VECTORS + v] = {count, sum};
        i32 whole[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) whole[i] = __float2int_rn(values[j][i] * up) + 128;
        // A low digit above 127 wraps to negative, with a carry into the high digit.
        const u32 first = __byte_perm(whole[0], whole[1], 0x5410), second = __byte_perm(whole[2], whole[3], 0x5410);
        const u32 at = ChunkLayout<F>::offset(word);
        u8 *to = buffers.digits + (chunk * UNITS + at / 32) * DIGITS + v * 64 + at % 32;
        *(u32 *)to = __byte_perm(first, second, 0x7531);
        *(u32 *)(to + 32) = __byte_perm(first, second, 0x6420) ^ 0x80808080u;
    }
}

// A lane's sums within a chunk, of rows g and g + 8, for the units of its slot and its vector.
struct Sums {
    const u8 *digits;
    const float2 *units;
    int lane;
    f32 parts[2];

    __device__ inline Sums(const SharedBuffers &buffers, u32 chunk, int lane) : lane(lane) {
        digits = buffers.digits + chunk * UNITS * DIGITS + lane * 8;
        units = buffers.units + chunk * UNITS * VECTORS;
        parts[0] = parts[1] = 0;
    }
    // The lane's part of the units from u on, and whether it belongs to this slot.
    __device__ inline uint2 side(int u) const { return *(const uint2 *)(digits + u * DIGITS); }
    __device__ inline bool mine(int slot) const { return SLOTS == 1 || lane / (8 * VECTORS) == slot; }
    // The lane's slot of the accumulators.
    __device__ inline int slot() const { return lane % 4 / VECTORS; }
    __device__ inline float2 unit(int u) const { return units[u * VECTORS + lane % VECTORS]; }
    __device__ static inline f32 whole(const i32 (&c)[4], int r) { return (f32)(c[2 * r] * 256 + c[2 * r + 1]); }
};

// Products of a chunk with 16 staged rows.
template <class F> struct Chunk {
    static __device__ inline void add(f32 (&own)[2], Sums sums, const u8 *stage, u32, u32 there, int lane) {
        const u8 *rows = stage + lane / 4 * Strip<F>::STRIDE;
#pragma unroll
        for (int u0 = 0; u0 < UNITS; u0 += SLOTS) {
            const uint2 x = sums.side(u0);
            i32 c[4] = {0, 0, 0, 0};
#pragma unroll
            for (int slot = 0; slot < SLOTS; ++slot) {
                u32 codes[2][2];
#pragma unroll
                for (int r = 0; r < 2; ++r) {
                    const int at = (u0 + slot) * F::BYTES;
                    Codes<F>::load(codes[r], rows + r * 8 * Strip<F>::STRIDE + at, at, lane % 4);
                }
                mma_add(c, codes[0][0], codes[1][0], codes[0][1], codes[1][1], sums.mine(slot) ? x.x : 0, sums.mine(slot) ? x.y : 0);
            }
            const u32 u = u0 + sums.slot();
            const float2 unit = sums.unit(u);
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                Scale two[2];
                F::scales(two, rows + r * 8 * Strip<F>::STRIDE + u * F::BYTES, 0, SeparateScales{}, 0, 0);
                // Beyond the last unit, scales are 0.
                if (u >= there) two[0] = {0, 0};
                own[r] = fmaf(two[0].d * (1 / Codes<F>::UNIT_SCALE) * unit.x, Sums::whole(c, r), own[r]);
                if (F::MINIMUM) own[r] = fmaf(two[0].m, unit.y, own[r]);
            }
        }
    }
};
// 256 weights: 6-bit scales.
template <class F> struct Blocks {
    static __device__ inline void add(f32 (&own)[2], Sums sums, const u8 *stage, u32, u32, int lane) {
        const int t = lane % 4;
        const u8 *rows = stage + lane / 4 * Strip<F>::STRIDE;
        u32 ds[2][2], ms[2][2];
        f32 scale[2], least[2], parts[2] = {0, 0}, lower[2] = {0, 0};
        uint2 high[2] = {};
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const u8 *row = rows + r * 8 * Strip<F>::STRIDE;
            const uint4 head = *(const uint4 *)row;
            ds[r][0] = head.y & 0x3f3f3f3fu, ds[r][1] = (head.w & 0x0f0f0f0fu) | (head.y >> 2 & 0x30303030u);
            ms[r][0] = head.z & 0x3f3f3f3fu, ms[r][1] = (head.w >> 4 & 0x0f0f0f0fu) | (head.z >> 2 & 0x30303030u);
            const f16 d = {(u16)head.x}, m = {(u16)(head.x >> 16)};
            scale[r] = widen(d), least[r] = widen(m);
            if (F::HIGH) high[r] = *(const uint2 *)(row + 16 + t * 8);
        }
        uint2 low[2];
        i32 c[4];
        uint2 x;
#pragma unroll
        for (int u = 0; u < UNITS; ++u) {
            u32 codes[2][2];
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                if (u % 2 == 0) low[r] = *(const uint2 *)(rows + r * 8 * Strip<F>::STRIDE + F::low_at(0) + u * 16 + t * 8);
                codes[r][0] = low[r].x >> u % 2 * 4 & 0x0f0f0f0fu, codes[r][1] = low[r].y >> u % 2 * 4 & 0x0f0f0f0fu;
                if (F::HIGH) {
                    codes[r][0] |= (u < 4 ? high[r].x << (4 - u) : high[r].x >> (u - 4)) & 0x10101010u;
                    codes[r][1] |= (u < 4 ? high[r].y << (4 - u) : high[r].y >> (u - 4)) & 0x10101010u;
                }
            }
            const int slot = u % SLOTS;
            if (slot == 0) {
                x = sums.side(u);
                c[0] = c[1] = c[2] = c[3] = 0;
            }
            mma_add(c, codes[0][0], codes[1][0], codes[0][1], codes[1][1], sums.mine(slot) ? x.x : 0, sums.mine(slot) ? x.y : 0);
            if (slot + 1 < SLOTS) continue;
            const int first = u - slot, byte = first % 4 + sums.slot();
            const float2 unit = sums.unit(first + sums.slot());
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                parts[r] = fmaf(byte_of(ds[r][first / 4], byte, 0) * unit.x, Sums::whole(c, r), parts[r]);
                lower[r] = fmaf(byte_of(ms[r][first / 4], byte, 0), unit.y, lower[r]);
            }
        }
#pragma unroll
        for (int r = 0; r < 2; ++r) own[r] += scale[r] * parts[r] - least[r] * lower[r];
    }
};
template <> struct Chunk<q4_k> : Blocks<q4_k> {};
template <> struct Chunk<q5_k> : Blocks<q5_k> {};
// 8-bit scales per 16 weights: a run and the one 64 columns later have the same slot, but their own columns.
template <> struct Chunk<q6_k> {
    static __device__ inline void add(f32 (&own)[2], Sums sums, const u8 *stage, u32 skew, u32, int lane) {
        const int t = lane % 4;
        const u8 *rows = stage + lane / 4 * Strip<q6_k>::STRIDE + skew;
        f32 parts[2] = {0, 0};
#pragma unroll 1
        for (int half = 0; half < 2; ++half) {
            const Q6kRows<Strip<q6_k>::STRIDE> six(rows, half, t, skew);
#pragma unroll
            for (int first = 0; first < 4; first += SLOTS) {
                const uint2 x = sums.side(half * 4 + first);
                i32 c[2][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
#pragma unroll
                for (int slot = 0; slot < SLOTS; ++slot) {
                    const int unit = first + slot;
                    u32 codes[2][2];
                    six.codes(codes, rows, half, unit, t, skew);
                    mma_add(c[0], codes[0][0], codes[1][0], sums.mine(slot) ? x.x : 0);
                    mma_add(c[1], codes[0][1], codes[1][1], sums.mine(slot) ? x.y : 0);
                }
                const int unit = first + sums.slot();
#pragma unroll
                for (int run = 0; run < 2; ++run) {
                    const f32 count = sums.unit(half * 4 + run * 2 + unit / 2).x;
#pragma unroll
                    for (int r = 0; r < 2; ++r) {
                        parts[r] = fmaf((f32)six.scale(r, run, unit) * count, Sums::whole(c[run], r), parts[r]);
                    }
                }
            }
        }
#pragma unroll
        for (int r = 0; r < 2; ++r) own[r] = fmaf(half_at(rows + r * 8 * Strip<q6_k>::STRIDE + 208) * 0.25f, parts[r], own[r]);
    }
};

// Issues the copies of a block's strips.
template <class F> __device__ inline void fetch(const u8 *weights, const GemvParams &p, const SharedBuffers &buffers, u32 chunks, int lane) {
    const u64 policy = evict_first_policy();
    u32 stage = 0, parity = 1;
#pragma unroll 1
    for (u32 row0 = blockIdx.x * 16; row0 < p.rows; row0 += gridDim.x * 16) {
        const u32 rows = p.rows - row0 < 16 ? p.rows - row0 : 16;
        const u8 *from = weights + (row0 + lane) * p.weights_row;
#pragma unroll 1
        for (u32 chunk = 0; chunk < chunks; chunk += WAVES) {
            const u32 left = (u32)p.weights_row - chunk * ChunkLayout<F>::CHUNK, bytes = left < Strip<F>::BYTES ? left : Strip<F>::BYTES;
            wait(buffers.empty + stage, parity);
            if (lane == 0) expect(buffers.full + stage, rows * bytes);
            __syncwarp();
            if (lane < rows) copy_row(buffers.ring + (stage * 16 + lane) * Strip<F>::STRIDE, from, bytes, buffers.full + stage, policy);
            from += Strip<F>::BYTES;
            if (++stage == STAGES) stage = 0, parity ^= 1;
        }
    }
}

template <class F, class X, class R> __device__ inline void gemv(R *out, const u8 *weights, const X *x, const GemvParams &p, u8 *smem) {
    const int lane = threadIdx.x % 32, wave = threadIdx.x / 32;
    const u32 chunks = (p.units + UNITS - 1) / UNITS, tiles = (p.rows + 15) / 16, rounds = (tiles - blockIdx.x + gridDim.x - 1) / gridDim.x;
    const u32 vector0 = blockIdx.y * VECTORS;
    SharedBuffers buffers;
    buffers.full = (u64 *)smem, buffers.empty = buffers.full + STAGES;
    buffers.ring = smem + 128;
    buffers.digits = buffers.ring + STAGES * 16 * Strip<F>::STRIDE;
    buffers.units = (float2 *)(buffers.digits + chunks * UNITS * DIGITS);
    buffers.parts = (f32 *)(buffers.units + chunks * UNITS * VECTORS);
    pdl_launch_dependents();
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) init_barrier(buffers.full + i, 1), init_barrier(buffers.empty + i, WAVES);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (wave == WAVES) {
        if (!p.prefetchable) pdl_wait();
        fetch<F>(weights, p, buffers, chunks, lane);
        return;
    }
    pdl_wait();
#pragma unroll 1
    for (u32 v = 0; v < VECTORS; ++v) {
        const u32 wanted = vector0 + v, vector = wanted < p.vectors ? wanted : p.vectors - 1;
        // Several loads in flight: the first has the full latency.
#pragma unroll 1
        for (u32 chunk = wave; chunk < chunks; chunk += 4 * WAVES) {
            f32 values[4][2][4];
#pragma unroll
            for (int i = 0; i < 4; ++i) load_x<X>(values[i], x + vector * p.x_row, p, chunk + i * WAVES, lane);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                if (chunk + i * WAVES < chunks) quantize_chunk<F>(buffers, values[i], chunk + i * WAVES, v, lane);
            }
        }
    }
    __syncwarp();
    u32 stage = 0, parity = 0;
#pragma unroll 1
    for (u32 round = 0; round < rounds; ++round) {
        f32 own[2] = {0, 0};
#pragma unroll 1
        for (u32 first = 0; first < chunks; first += WAVES) {
            const u32 chunk = first + wave, left = p.units - chunk * UNITS;
            wait(buffers.full + stage, parity);
            if (chunk < chunks) {
                const u8 *strip = buffers.ring + stage * 16 * Strip<F>::STRIDE, *mine = ChunkLayout<F>::CHUNK % 16 ? strip : strip + wave * ChunkLayout<F>::CHUNK;
                Chunk<F>::add(own, Sums(buffers, chunk, lane), mine, wave * ChunkLayout<F>::CHUNK, left < UNITS ? left : UNITS, lane);
            }
            __syncwarp();
            if (lane == 0) arrive(buffers.empty + stage);
            if (++stage == STAGES) stage = 0, parity ^= 1;
        }
        f32 *to = buffers.parts + (round % TILES_PER_REDUCE * WAVES + wave) * 16 * VECTORS;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
#pragma unroll
            for (int by = VECTORS; by < 4; by *= 2) own[r] += __shfl_xor_sync(0xffffffffu, own[r], by);
            if (lane % 4 < VECTORS) to[(lane / 4 + 8 * r) * VECTORS + lane % 4] = own[r];
        }
        if ((round + 1) % TILES_PER_REDUCE && round + 1 < rounds) continue;
        // Waves' sums are added in a fixed order.
        sync_waves();
        for (u32 i = threadIdx.x; i < (round % TILES_PER_REDUCE + 1) * 16 * VECTORS; i += THREADS) {
            const u32 buffered = i / (16 * VECTORS), offset = i % (16 * VECTORS), vector = vector0 + offset % VECTORS;
            const u32 row = (blockIdx.x + (round - round % TILES_PER_REDUCE + buffered) * gridDim.x) * 16 + offset / VECTORS;
            if (row >= p.rows || vector >= p.vectors) continue;
            f32 sum = 0;
#pragma unroll
            for (int w = 0; w < WAVES; ++w) sum += buffers.parts[(buffered * WAVES + w) * 16 * VECTORS + offset];
            out[vector * p.out_row + row * p.out_stride] = Narrow<R>::from(sum);
        }
        sync_waves();
    }
}

// The compute waves, and the one that copies.
extern "C" __global__ void __launch_bounds__(THREADS + 32, 1)
NAME(V *out, const u8 *weights, const U *x, GemvParams p) {
    extern __shared__ uint4 smem[];
    gemv<T, U, V>(out, weights, x, p, (u8 *)smem);
}

#else
extern "C" __global__ void NAME() {}
#endif
