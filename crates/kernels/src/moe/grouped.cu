// Grouped matrix product: row i of the result is row i / share of x times the transposed matrix of the row's expert, plus its bias.
//
// Each block has a tile of up to ROWS rows of one expert, and 4 rows of the expert's weights per wave. T is the type of the weights (plain,
// or quantized), U that of x, V that of the result; sums are f32. Lanes take pieces of 8 weights: two quads, adjacent if the weights are
// plain. VECTORS: rows of plain weights consist of aligned pieces.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME grouped_f16_f32_f32
#define T f16
#define U f32
#define V f32
#define ROWS 4
#define QUANTIZED 0
#define VECTORS 1
#endif

#include "common/pack.cuh"
#include "common/pdl.cuh"
#include "quant/blocks.cuh"

#define THREADS 128
#define PER_WAVE 4
// Columns of x in shared memory: whole blocks of all formats.
#define CHUNK 1024

struct Grouped {
    // Rows and columns of an expert's matrix; rows of x per expert of a token.
    u32 rows, columns, share, padding;
    // Row pitch of the weights in bytes; row strides of x and of the result in elements.
    u64 weights_row, x_row, out_row;
};

struct Piece {
    f32 at[8];
};

#if QUANTIZED
__device__ inline int first_column(u32 piece) {
    const u32 unit = piece / 4;
    return unit / units_of<T>() * T::BLOCK + T::first(unit % units_of<T>()) + piece % 4 * 4;
}
#define SECOND T::GAP
__device__ inline Piece weights_at(const u8 *row, u32 piece, u32) {
    const u32 unit = piece / 4;
    const u8 *block = row + (u64)(unit / units_of<T>()) * T::BYTES;
    Unit<T, 1, false> codes;
    Scale scales[2];
    codes.load(block, (u32)(u64)block, unit % units_of<T>(), piece % 4);
    T::scales(scales, block, unit % units_of<T>(), SeparateScales{}, 0, 0);
    Piece result;
#pragma unroll
    for (int run = 0; run < 2; ++run) {
        f32 values[4];
        to_floats<T>(codes.codes(unit % units_of<T>(), run, 0, piece % 4), values);
#pragma unroll
        for (int i = 0; i < 4; ++i) result.at[4 * run + i] = T::MINIMUM ? fmaf(scales[run].d, values[i], scales[run].m) : scales[run].d * values[i];
    }
    return result;
}
#else
__device__ inline int first_column(u32 piece) { return piece * 8; }
#define SECOND 4
__device__ inline Piece weights_at(const u8 *row, u32 piece, u32 columns) {
    const T *from = (const T *)row + piece * 8;
    Piece result;
#if VECTORS
    constexpr int EACH = 16 / sizeof(T) < 8 ? 16 / sizeof(T) : 8;
#pragma unroll
    for (int i = 0; i < 8; i += EACH) {
        const Pack<T, EACH> pack = get<T, EACH>(from + i);
#pragma unroll
        for (int e = 0; e < EACH; ++e) result.at[i + e] = widen(pack.at[e]);
    }
#else
#pragma unroll
    for (int i = 0; i < 8; ++i) result.at[i] = piece * 8 + i < columns ? widen(from[i]) : 0;
#endif
    return result;
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS)
NAME(const u8 *weights, const U *x, const u32 *order, const u32 *tiles, const f32 *bias, V *out, Grouped g) {
    __shared__ f32 smem[ROWS][CHUNK];
    __shared__ u32 ids[ROWS];
    pdl_sync();
    const u32 expert = tiles[3 * blockIdx.x], start = tiles[3 * blockIdx.x + 1], count = tiles[3 * blockIdx.x + 2];
    if (count == 0) return;
    if (threadIdx.x < ROWS) ids[threadIdx.x] = order[start + (threadIdx.x < count ? threadIdx.x : 0)];
    const u32 lane = threadIdx.x % WAVE, row0 = (blockIdx.y * (THREADS / WAVE) + threadIdx.x / WAVE) * PER_WAVE;
    const u8 *from[PER_WAVE];
#pragma unroll
    for (int n = 0; n < PER_WAVE; ++n) {
        const u32 row = row0 + n < g.rows ? row0 + n : g.rows - 1;
        from[n] = weights + ((u64)expert * g.rows + row) * g.weights_row;
    }
    f32 sums[PER_WAVE][ROWS];
#pragma unroll
    for (int n = 0; n < PER_WAVE; ++n) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) sums[n][r] = 0;
    }
    for (u32 column0 = 0; column0 < g.columns; column0 += CHUNK) {
        __syncthreads();
        // Pieces are whole: columns beyond the last are 0.
        const u32 columns = g.columns - column0 < CHUNK ? (g.columns - column0 + 7) / 8 * 8 : CHUNK;
        for (u32 i = threadIdx.x; i < columns; i += THREADS) {
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                smem[r][i] = column0 + i < g.columns ? widen(x[(u64)(ids[r] / g.share) * g.x_row + column0 + i]) : 0;
            }
        }
        __syncthreads();
        for (u32 p = lane; p < columns / 8; p += WAVE) {
            const u32 piece = column0 / 8 + p;
            const f32 *at = &smem[0][first_column(piece) - column0];
            Piece values[ROWS];
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
#pragma unroll
                for (int i = 0; i < 4; ++i) values[r].at[i] = at[r * CHUNK + i], values[r].at[4 + i] = at[r * CHUNK + SECOND + i];
            }
#pragma unroll
            for (int n = 0; n < PER_WAVE; ++n) {
                const Piece w = weights_at(from[n], piece, g.columns);
#pragma unroll
                for (int r = 0; r < ROWS; ++r) {
#pragma unroll
                    for (int i = 0; i < 8; ++i) sums[n][r] = fmaf(w.at[i], values[r].at[i], sums[n][r]);
                }
            }
        }
    }
#pragma unroll
    for (int n = 0; n < PER_WAVE; ++n) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            f32 sum = sums[n][r];
#pragma unroll
            for (int apart = WAVE / 2; apart > 0; apart /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, apart);
            if (lane == 0 && r < count && row0 + n < g.rows) {
                const f32 term = bias ? bias[(u64)expert * g.rows + row0 + n] : 0;
                out[(u64)ids[r] * g.out_row + row0 + n] = Narrow<V>::from(sum + term);
            }
        }
    }
}
