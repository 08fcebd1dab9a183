// Matrix products of f16 or bf16 on matrix units with quantized weights, or with those of experts: out[v] = W · x[v], sums f32. x is packed
// by pack.cu.
//
// A block has 16 · MI · WM rows of W and VECTORS vectors, and WK chunks of columns at a time. Its waves are WM along the rows, WN along the
// vectors and WK along the columns; each turns its own weights into operands in registers. Rows and packed vectors are copied to shared
// memory STAGES ahead. Columns may also be divided over blocks (blockIdx.z), whose sums finish.cu adds.
//
// Grouped products (OP_grouped_f16): each tile of `tiles` is VECTORS assignments of one expert; assignment i has row i / share of x.
// OP_grouped_swiglu_f16: half of a block's rows are those of a second matrix, and the result is silu(first) · second.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME quant_gemm_f16_q4_0_f16
#define T q4_0
#define U f16
#define VECTORS 32
#define WM 4
#define WN 1
#define WK 2
#define MI 1
#define STAGES 2
#endif

#if defined(OP_grouped_f16) || defined(OP_grouped_swiglu_f16)
#define GROUPED 1
#else
#define GROUPED 0
#endif
#if defined(OP_grouped_swiglu_f16)
#define MATRICES 2
#else
#define MATRICES 1
#endif

#include "common/pdl.cuh"
#include "quant/halves.cuh"

struct GemmParams {
    // Row pitch of the weights in bytes; row and column stride of the result in elements.
    u64 weights_row, out_row, out_stride;
    u32 rows, units, vectors, chunks;
    // Blocks that share the columns; whether the weights may be read while the previous kernel runs; assignments per row of x.
    u32 parts, prefetchable, share, unused;
};

typedef Operand<T>::Type E;
constexpr int COLUMNS = Operand<T>::COLUMNS;
constexpr int THREADS = WM * WN * WK * WAVE, TILE_ROWS = 16 * MI * WM, ROWS = TILE_ROWS / MATRICES, NI = VECTORS / WN / 16;
constexpr int W_BYTES = TILE_ROWS * ChunkRows<T>::STRIDE, X_BYTES = VECTORS * COLUMNS * 2, STAGE_BYTES = WK * (W_BYTES + X_BYTES);
typedef Swizzled<E, COLUMNS> AtX;

// What a block reads: rows of the matrices from row0 on, and packed vectors.
struct Source {
    const u8 *weights, *second;
    const E *x;
    u32 row0, vector0, vectors;
    // Grouped: the assignments of the tile.
    const u32 *ids;
    __device__ const u8 *matrix(int row) const { return MATRICES == 2 && row >= ROWS ? second : weights; }
};

// Copies the rows of WK chunks; zeros beyond the last column and row.
__device__ inline void copy_weights(u8 *to, const Source &from, const GemmParams &p, u32 chunk0) {
    constexpr int PIECES = ChunkRows<T>::PIECES;
#pragma unroll 1
    for (int at = threadIdx.x; at < WK * TILE_ROWS * PIECES; at += THREADS) {
        const int piece = at % PIECES, row = at / PIECES % TILE_ROWS, k = at / (PIECES * TILE_ROWS);
        const u32 wanted = from.row0 + row % ROWS, there = wanted < p.rows ? wanted : p.rows - 1;
        const u8 *begin = from.matrix(row) + there * p.weights_row;
        const u64 offset = (u64)(chunk0 + k) * ChunkRows<T>::BYTES;
        const i64 first = (i64)offset + piece * 16 - (i64)((u64)(begin + offset) % 16);
        i64 left = wanted < p.rows ? (i64)p.weights_row - first : 0;
        left = left < 0 ? 0 : left > 16 ? 16 : left;
        // What is not read is still an aligned address of the matrix.
        const u8 *source = left ? begin + first : (const u8 *)((u64)begin & ~15ull);
        copy_async16(to + k * (W_BYTES + X_BYTES) + row * ChunkRows<T>::STRIDE + piece * 16, source, (int)left);
    }
}

// Copies the packed vectors of WK chunks; zeros beyond the last.
__device__ inline void copy_x(u8 *to, const Source &from, const GemmParams &p, u32 chunk0) {
    constexpr int PIECES = COLUMNS / 8;
#pragma unroll 4
    for (int at = threadIdx.x; at < WK * VECTORS * PIECES; at += THREADS) {
        const int piece = at % PIECES, row = at / PIECES % VECTORS, k = at / (PIECES * VECTORS);
        const bool there = from.vector0 + row < from.vectors && chunk0 + k < p.chunks;
        u64 vector = 0;
        if (there) vector = GROUPED ? from.ids[row] / p.share : from.vector0 + row;
        const u64 offset = (vector * p.chunks + (there ? chunk0 + k : 0)) * COLUMNS + piece * 8;
        E *x = (E *)(to + k * (W_BYTES + X_BYTES) + W_BYTES);
        copy_async16(x + AtX::offset(row, piece * 8), from.x + offset, there ? 16 : 0);
    }
}

// Adds the products of a stage.
__device__ inline void multiply(TileC (&sums)[MI][NI], const u8 *stage, const Source &source, const SeparateScales &separate, const GemmParams &p, u32 chunk) {
    const int wave = threadIdx.x / WAVE, wave_m = wave % WM, wave_n = wave / WM % WN;
    const AtX at_x = {(E *)(stage + W_BYTES)};
#pragma unroll 1
    for (int group = 0; group < COLUMNS / 128; ++group) {
        LaneUnits<T> own[MI];
#pragma unroll
        for (int i = 0; i < MI; ++i) {
            const int row = (wave_m * MI + i) * 16;
            const u32 row0 = source.row0 + row % ROWS;
            const u64 address = (u64)source.matrix(row) + row0 * p.weights_row + (u64)chunk * ChunkRows<T>::BYTES;
            own[i].load(stage + row * ChunkRows<T>::STRIDE, (u32)address % 16, (u32)p.weights_row % 16, group, separate, row0, p.rows - 1,
                        chunk * (COLUMNS / 32), p.units - 1);
        }
#pragma unroll
        for (int s = 0; s < 8; ++s) {
            TileA<E> a[MI];
#pragma unroll
            for (int i = 0; i < MI; ++i) a[i] = own[i].tile(s);
#pragma unroll
            for (int j = 0; j < NI; ++j) {
                TileB<E> b;
                load_b_t(b, from(at_x, (wave_n * NI + j) * 16, group * 128 + s * 16));
#pragma unroll
                for (int i = 0; i < MI; ++i) mma(sums[i][j], a[i], b);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
#if GROUPED
NAME(U *out, const u8 *weights, const u8 *second, const E *x, const u32 *order, const u32 *tiles, const f32 *bias, const f32 *second_bias, GemmParams p) {
    const SeparateScales separate = {};
    __shared__ u32 ids[VECTORS];
    pdl_sync();
    const u32 expert = tiles[3 * blockIdx.y], start = tiles[3 * blockIdx.y + 1], count = tiles[3 * blockIdx.y + 2];
    if (count == 0) return;
    for (u32 i = threadIdx.x; i < VECTORS; i += THREADS) ids[i] = order[start + (i < count ? i : 0)];
    __syncthreads();
    const u64 matrix = (u64)expert * p.rows * p.weights_row;
    const Source source = {weights + matrix, second + matrix, x, blockIdx.x * ROWS, 0, count, ids};
    const u32 part = 0;
#else
NAME(U *out, f32 *partial, const u8 *weights, const void *scales, const u8 *zeros, Groups groups, const E *x, GemmParams p) {
    const SeparateScales separate = {scales, zeros, groups};
    const Source source = {weights, nullptr, x, blockIdx.x * ROWS, blockIdx.y * VECTORS, p.vectors, nullptr};
    const u32 part = blockIdx.z;
    pdl_launch_dependents();
    if (!p.prefetchable) pdl_wait();
#endif
    extern __shared__ uint4 smem[];
    u8 *const ring = (u8 *)smem;
    const int wave = threadIdx.x / WAVE, wave_m = wave % WM, wave_n = wave / WM % WN, wave_k = wave / (WM * WN);
    // Steps of WK chunks.
    const u32 all = (p.chunks + WK - 1) / WK, begin = (u32)((u64)all * part / p.parts), end = (u32)((u64)all * (part + 1) / p.parts);
#pragma unroll 1
    for (u32 i = 0; i < STAGES - 1; ++i) {
        if (begin + i < end) copy_weights(ring + i * STAGE_BYTES, source, p, (begin + i) * WK);
    }
#if !GROUPED
    if (p.prefetchable) pdl_wait();
#endif
#pragma unroll 1
    for (u32 i = 0; i < STAGES - 1; ++i) {
        if (begin + i < end) copy_x(ring + i * STAGE_BYTES, source, p, (begin + i) * WK);
        commit_copies();
    }

    TileC sums[MI][NI];
#pragma unroll
    for (int i = 0; i < MI * NI; ++i) sums[i / NI][i % NI].clear();
    u32 slot = 0;
#pragma unroll 1
    for (u32 step = begin; step < end; ++step) {
        // This stage has arrived, and nobody reads the one before it any more.
        wait_copies<STAGES < 2 ? 0 : STAGES - 2>();
        __syncthreads();
        const u32 ahead = step + STAGES - 1;
        u8 *const next = ring + (slot == 0 ? STAGES - 1 : slot - 1) * STAGE_BYTES;
        if (ahead < end) {
            copy_weights(next, source, p, ahead * WK);
            copy_x(next, source, p, ahead * WK);
        }
        commit_copies();
        if (STAGES == 1) {
            wait_copies<0>();
            __syncthreads();
        }
        multiply(sums, ring + slot * STAGE_BYTES + wave_k * (W_BYTES + X_BYTES), source, separate, p, step * WK + wave_k);
        slot = slot + 1 == STAGES ? 0 : slot + 1;
    }

    // Sums of all waves, by vector and row; padded against bank conflicts.
    constexpr int PITCH = TILE_ROWS + 4;
    f32 *const staging = (f32 *)smem;
    wait_copies<0>();
    __syncthreads();
#pragma unroll
    for (int i = 0; i < MI; ++i) {
#pragma unroll
        for (int j = 0; j < NI; ++j) {
#pragma unroll
            for (int e = 0; e < TileC::N; ++e) {
                const int vector = (wave_n * NI + j) * 16 + TileC::column(e), row = (wave_m * MI + i) * 16 + TileC::row(e);
                staging[(wave_k * VECTORS + vector) * PITCH + row] = sums[i][j].at[e];
            }
        }
    }
    __syncthreads();
#pragma unroll 1
    for (int at = threadIdx.x; at < VECTORS * ROWS; at += THREADS) {
        const u32 row = source.row0 + at % ROWS, vector = source.vector0 + at / ROWS;
        if (row >= p.rows || vector >= source.vectors) continue;
        f32 sum[MATRICES];
#pragma unroll
        for (int m = 0; m < MATRICES; ++m) {
            sum[m] = 0;
#pragma unroll
            for (int k = 0; k < WK; ++k) sum[m] += staging[(k * VECTORS + at / ROWS) * PITCH + m * ROWS + at % ROWS];
            sum[m] *= Operand<T>::FACTOR;
        }
#if GROUPED
        const u64 place = (u64)expert * p.rows + row;
        if (bias) sum[0] += bias[place];
        f32 result = sum[0];
        if (MATRICES == 2) {
            const f32 up = sum[MATRICES - 1] + (second_bias ? second_bias[place] : 0);
            // The exponential never overflows.
            const f32 e = exp2_approx(-fabsf(result) * 1.4426950408889634f);
            result = result * (result < 0 ? e : 1.0f) / (1.0f + e) * up;
        }
        out[(u64)ids[vector] * p.out_row + row] = Narrow<U>::from(result);
#else
        if (p.parts > 1) partial[((u64)part * p.vectors + vector) * p.rows + row] = sum[0];
        else out[vector * p.out_row + row * p.out_stride] = Narrow<U>::from(sum[0]);
#endif
    }
}
