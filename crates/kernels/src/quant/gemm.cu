// Quantized matrix product for many vectors, in tiles on matrix units: out[v] = W · x[v], x being Q8_1 blocks.
//
// A block has 128 rows of W and 64 vectors, and iterates over 128 columns: codes become signed bytes in shared memory, and each product
// over 32 of them is scaled separately. Where 32 weights have two scales, they are stored twice, each time with the other half zero.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME gemm_q4_0_f32
#define T q4_0
#define U f32
#endif

#include "common/tile.cuh"
#include "quant/blocks.cuh"

#define TILE_ROWS 128
#define TILE_VECTORS 64
#define DEPTH 128
#define THREADS 256

struct GemmParams {
    // Row pitch of the weights and of x in bytes; strides of the result in elements.
    u64 weights_row, x_row, out_row, out_stride;
    u32 rows, units, vectors;
    // Row tiles that share the vectors.
    u32 tiles;
};

template <class F> struct SharedTile {
    static constexpr int PARTS = F::SPLIT ? 2 : 1, COLUMNS = DEPTH * PARTS, SCALES = DEPTH / 32 * PARTS;
    // Minimums of 16 weights need sums of 16 codes of x.
    static constexpr int SUMS = F::SPLIT && F::MINIMUM ? 2 : 1;
    alignas(16) i8 w[TILE_ROWS * COLUMNS];
    alignas(16) i8 x[TILE_VECTORS * DEPTH];
    Scale w_scale[SCALES][TILE_ROWS];
    // The scale of an x block or half, and the scaled sum of its codes.
    Scale x_scale[DEPTH / 32 * SUMS][TILE_VECTORS];
    static __device__ int w_at(int row, int column) { return Swizzled<i8, COLUMNS>::offset(row, column); }
    static __device__ int x_at(int row, int column) { return Swizzled<i8, DEPTH>::offset(row, column); }
};

// Four codes minus ZERO as signed bytes.
template <class F> __device__ inline u32 to_signed(u32 codes) {
    if (F::SIGNED) return codes;
    return ((codes | 0x80808080u) - F::ZERO * 0x01010101u) ^ 0x80808080u;
}

// A thread's part of a tile, loaded to registers before it is stored to shared memory.
template <class F> struct Part {
    static constexpr int UNITS = TILE_ROWS * 4 / THREADS;
    Unit<F, 4, false> units[UNITS];
    Scale scales[UNITS][2];
    u32 x[9];

    __device__ inline void load(const u8 *weights, const SeparateScales &separate, const u8 *from, const GemmParams &p, u32 row0, u32 vector0, u32 unit0) {
        const u32 u = unit0 + threadIdx.x % 4;
        // Nothing is read beyond the last column; scales of 0 mask it.
        const bool there = u < p.units;
#pragma unroll
        for (int j = 0; j < UNITS; ++j) {
            const u32 wanted = row0 + (j * THREADS + threadIdx.x) / 4, row = wanted < p.rows ? wanted : p.rows - 1;
            scales[j][0] = scales[j][1] = {0, 0};
            if (there) {
                const u8 *block = weights + row * p.weights_row + (u64)(u / units_of<F>()) * F::BYTES;
                units[j].load(block, (u32)(u64)block, u % units_of<F>());
                F::scales(scales[j], block, u % units_of<F>(), separate, row, u);
            }
        }
        const u32 wanted = vector0 + threadIdx.x / 4, vector = wanted < p.vectors ? wanted : p.vectors - 1;
        const u32 *block = (const u32 *)(from + vector * p.x_row) + (u64)u * 9;
#pragma unroll
        for (int i = 0; i < 9; ++i) x[i] = there ? block[i] : 0;
    }

    __device__ inline void store(SharedTile<F> &smem, u32 unit0) const {
        const int k = threadIdx.x % 4, unit = (unit0 + k) % units_of<F>();
#pragma unroll
        for (int j = 0; j < UNITS; ++j) {
            const int offset = (j * THREADS + threadIdx.x) / 4;
#pragma unroll
            for (int run = 0; run < 2; ++run) {
                const uint4 codes = {to_signed<F>(units[j].codes(unit, run, 0)), to_signed<F>(units[j].codes(unit, run, 1)),
                                     to_signed<F>(units[j].codes(unit, run, 2)), to_signed<F>(units[j].codes(unit, run, 3))};
                // Relative to a multiple of 128 columns.
                const int column = (F::BLOCK == 32 ? k * 32 : F::first(unit % 4)) + run * F::GAP, half = column / 16 % 2;
                if (F::SPLIT) {
                    const int part = column / 32 * 2 + half;
                    const uint4 zeros = {0, 0, 0, 0};
                    *(uint4 *)(smem.w + smem.w_at(offset, part * 32 + 16 * half)) = codes;
                    *(uint4 *)(smem.w + smem.w_at(offset, part * 32 + 16 - 16 * half)) = zeros;
                    smem.w_scale[part][offset] = scales[j][run];
                } else {
                    *(uint4 *)(smem.w + smem.w_at(offset, column)) = codes;
                    if (half == 0) smem.w_scale[column / 32][offset] = scales[j][run];
                }
            }
        }
        const int offset = threadIdx.x / 4;
        const uint4 first = {x[1], x[2], x[3], x[4]}, second = {x[5], x[6], x[7], x[8]};
        *(uint4 *)(smem.x + smem.x_at(offset, k * 32)) = first;
        *(uint4 *)(smem.x + smem.x_at(offset, k * 32 + 16)) = second;
        const f16 d = {(u16)x[0]};
        constexpr int SUMS = SharedTile<F>::SUMS;
#pragma unroll
        for (int half = 0; half < SUMS; ++half) {
            i32 sum = 0;
#pragma unroll
            for (int i = 0; i < 8 / SUMS; ++i) sum = dot4(x[1 + half * 4 + i], 0x01010101u, sum);
            smem.x_scale[k * SUMS + half][offset] = {widen(d), widen(d) * (f32)sum};
        }
    }
};

template <class F, class R> __device__ inline void tiles(R *out, const u8 *weights, const SeparateScales &separate, const u8 *x, const GemmParams &p, SharedTile<F> &smem) {
    // Two waves along the vectors, the others along the rows.
    constexpr int WAVES = THREADS / WAVE, TALL = TILE_VECTORS / 2 / 16, WIDE = TILE_ROWS / (WAVES / 2) / 16;
    const int wave = threadIdx.x / WAVE, vectors_at = wave % 2 * TALL * 16, rows_at = wave / 2 * WIDE * 16;
    const u32 row0 = blockIdx.x % p.tiles * TILE_ROWS, vector0 = blockIdx.x / p.tiles * TILE_VECTORS;
    TileC sums[TALL][WIDE];
#pragma unroll
    for (int i = 0; i < TALL; ++i) {
#pragma unroll
        for (int j = 0; j < WIDE; ++j) sums[i][j].clear();
    }
    const Swizzled<i8, DEPTH> x_at = {smem.x};
    const Swizzled<i8, SharedTile<F>::COLUMNS> w_at = {smem.w};
    Part<F> own;
    own.load(weights, separate, x, p, row0, vector0, 0);
#pragma unroll 1
    for (u32 unit0 = 0; unit0 < p.units; unit0 += DEPTH / 32) {
        __syncthreads();
        own.store(smem, unit0);
        __syncthreads();
        // The next tile loads while this one is computed.
        if (unit0 + DEPTH / 32 < p.units) own.load(weights, separate, x, p, row0, vector0, unit0 + DEPTH / 32);
#pragma unroll 1
        for (int part = 0; part < SharedTile<F>::SCALES; ++part) {
            const int block = part / SharedTile<F>::PARTS;
            TileA<i8> a[TALL];
            f32 d[TALL][TileC::ROWS], s[TALL][TileC::ROWS];
#pragma unroll
            for (int i = 0; i < TALL; ++i) {
                load_a(a[i], from(x_at, vectors_at + 16 * i, block * 32));
#pragma unroll
                for (int e = 0; e < TileC::N; e += TileC::RUN) {
                    const Scale scale = smem.x_scale[SharedTile<F>::SUMS == 2 ? part : block][vectors_at + 16 * i + TileC::row(e)];
                    d[i][TileC::slot(e)] = scale.d;
                    s[i][TileC::slot(e)] = scale.m;
                }
            }
#pragma unroll
            for (int j = 0; j < WIDE; ++j) {
                TileB<i8> b;
                load_b_t(b, from(w_at, rows_at + 16 * j, part * 32));
                TileCInt gemv[TALL];
#pragma unroll
                for (int i = 0; i < TALL; ++i) {
                    gemv[i].clear();
                    mma(gemv[i], a[i], b);
                }
#pragma unroll
                for (int e = 0; e < TileC::N; ++e) {
                    const Scale scale = smem.w_scale[part][rows_at + 16 * j + TileC::column(e)];
#pragma unroll
                    for (int i = 0; i < TALL; ++i) {
                        f32 sum = sums[i][j].at[e];
                        sum = fmaf(scale.d * (f32)gemv[i].at[e], d[i][TileC::slot(e)], sum);
                        if (F::MINIMUM) sum = fmaf(scale.m, s[i][TileC::slot(e)], sum);
                        sums[i][j].at[e] = sum;
                    }
                }
            }
        }
    }
#pragma unroll
    for (int i = 0; i < TALL; ++i) {
#pragma unroll
        for (int j = 0; j < WIDE; ++j) {
#pragma unroll
            for (int e = 0; e < TileC::N; ++e) {
                const u32 vector = vector0 + vectors_at + 16 * i + TileC::row(e), row = row0 + rows_at + 16 * j + TileC::column(e);
                if (vector < p.vectors && row < p.rows) out[vector * p.out_row + row * p.out_stride] = Narrow<R>::from(sums[i][j].at[e]);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
NAME(U *out, const u8 *weights, const void *scales, const u8 *zeros, Groups groups, const u8 *x, GemmParams p) {
    extern __shared__ uint4 smem[];
    tiles<T, U>(out, weights, SeparateScales{scales, zeros, groups}, x, p, *(SharedTile<T> *)smem);
}
