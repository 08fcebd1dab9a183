// Tiled transpose: the input is contiguous along one dimension, the result along another. Tiles go through shared memory, so that reads and
// writes are coalesced.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME transpose_u32
#define T u32
#define THREADS 256
#endif

#include "common/pack.cuh"

#define TILE (sizeof(T) <= 2 ? 128 : sizeof(T) == 8 ? 32 : 64)
#define PACK ((int)(16 / sizeof(T)))
// Threads along a row; with a word of padding this avoids bank conflicts.
#define ACROSS 8
#define DOWN (THREADS / ACROSS)

// Dimension a is contiguous in the input, b in the result; the others are iterated outside.
struct Transpose {
    u64 a, b, in_b, out_a, tiles_a, tiles_b, tiles;
    u32 rank, in_packs, out_packs, padding;
    u64 shape[4], in[4], out[4];
};

// Tiles across dimension b per band; bands are copied one after another, so that concurrent accesses stay close on both sides.
#define BAND 64
__device__ inline u64 quotient(u64 x, u64 by) { return (x | by) >> 32 ? x / by : (u32)x / (u32)by; }

// Elements of a column per word. A full tile has 64 words per column, in groups of four that are swizzled by the column's vector index: no
// bank conflicts, neither for words nor for groups of four.
#define PER_WORD ((int)(sizeof(T) < 4 ? 4 / sizeof(T) : 1))
#define WORDS 64
__device__ inline int swizzled_index(int column, int word) { return column * WORDS + (word ^ (column / PACK % 8 * 4)); }
__device__ inline u32 word_of(const uint4 &pack, int k) { return k == 0 ? pack.x : k == 1 ? pack.y : k == 2 ? pack.z : pack.w; }

// Copies a full tile.
__device__ inline void copy_full_tile(u32 *tile, T *to, const T *from, const Transpose &params) {
    const int column_thread = threadIdx.x % ACROSS, row_thread = threadIdx.x / ACROSS;
    uint4 packs[WORDS / DOWN][TILE / PACK / ACROSS][PER_WORD];
#pragma unroll
    for (int j = 0; j < WORDS / DOWN; ++j)
#pragma unroll
        for (int i = 0; i < TILE / PACK / ACROSS; ++i)
#pragma unroll
            for (int e = 0; e < PER_WORD; ++e)
                packs[j][i][e] = *(const uint4 *)(from + ((row_thread + j * DOWN) * PER_WORD + e) * params.in_b + (column_thread + i * ACROSS) * PACK);
    __syncthreads();
#pragma unroll
    for (int j = 0; j < WORDS / DOWN; ++j)
#pragma unroll
        for (int i = 0; i < TILE / PACK / ACROSS; ++i)
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                const int word = row_thread + j * DOWN, column = (column_thread + i * ACROSS) * PACK + k * PER_WORD;
                const u32 first = word_of(packs[j][i][0], k);
                if constexpr (PER_WORD == 1) {
                    tile[swizzled_index(column, word)] = first;
                } else {
                    const u32 second = word_of(packs[j][i][PER_WORD - 1], k);
                    tile[swizzled_index(column, word)] = __byte_perm(first, second, 0x5410);
                    tile[swizzled_index(column + 1, word)] = __byte_perm(first, second, 0x7632);
                }
            }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < TILE / DOWN; ++j)
#pragma unroll
        for (int i = 0; i < WORDS / 4 / ACROSS; ++i) {
            const int column = row_thread + j * DOWN, four = column_thread + i * ACROSS;
            store_raw((uint4 *)(to + column * params.out_a + four * PACK), *(const uint4 *)(tile + swizzled_index(column, four * 4)));
        }
}

extern "C" __global__ void __launch_bounds__(THREADS) NAME(T *out, const T *in, Transpose params) {
    __shared__ __align__(16) T tile[TILE][TILE + (sizeof(T) < 4 ? 4 / sizeof(T) : 1)];
    const int column_thread = threadIdx.x % ACROSS, row_thread = threadIdx.x / ACROSS;
    for (u64 at = blockIdx.x; at < params.tiles; at += gridDim.x) {
        u64 rest = quotient(at, params.tiles_a * params.tiles_b), within = at - rest * (params.tiles_a * params.tiles_b);
        const u64 band = quotient(within, BAND * params.tiles_a) * BAND, left = params.tiles_b - band, high = left < BAND ? left : BAND;
        within -= band * params.tiles_a;
        const u64 tile_a = quotient(within, high), first_a = tile_a * TILE, first_b = (band + within - tile_a * high) * TILE;
        const T *from = in;
        T *to = out;
#pragma unroll 1
        for (int d = 0; d < params.rank; ++d) {
            const u64 outer = quotient(rest, params.shape[d]), place = rest - outer * params.shape[d];
            rest = outer;
            from += place * params.in[d];
            to += place * params.out[d];
        }
        if constexpr (sizeof(T) == 2 || sizeof(T) == 4) {
            if (params.in_packs && params.out_packs && first_a + TILE <= params.a && first_b + TILE <= params.b) {
                copy_full_tile((u32 *)tile, to + first_a * params.out_a + first_b, from + first_b * params.in_b + first_a, params);
                continue;
            }
        }
        __syncthreads();
#pragma unroll
        for (int j = 0; j < TILE / DOWN; ++j) {
            const u64 b = first_b + row_thread + j * DOWN;
#pragma unroll
            for (int i = 0; i < TILE / PACK / ACROSS; ++i) {
                const int column = (column_thread + i * ACROSS) * PACK;
                const u64 a = first_a + column;
                if (b >= params.b || a >= params.a) continue;
                const T *source = from + b * params.in_b + a;
                if (params.in_packs && a + PACK <= params.a) {
                    const Pack<T, PACK> pack = get<T, PACK>(source);
#pragma unroll
                    for (int k = 0; k < PACK; ++k) tile[column + k][row_thread + j * DOWN] = pack.at[k];
                } else {
                    for (int k = 0; k < PACK && a + k < params.a; ++k) tile[column + k][row_thread + j * DOWN] = source[k];
                }
            }
        }
        __syncthreads();
#pragma unroll
        for (int j = 0; j < TILE / DOWN; ++j) {
            const u64 a = first_a + row_thread + j * DOWN;
#pragma unroll
            for (int i = 0; i < TILE / PACK / ACROSS; ++i) {
                const int column = (column_thread + i * ACROSS) * PACK;
                const u64 b = first_b + column;
                if (a >= params.a || b >= params.b) continue;
                T *target = to + a * params.out_a + b;
                const T *row = tile[row_thread + j * DOWN] + column;
                if (params.out_packs && b + PACK <= params.b) {
                    Pack<T, PACK> pack;
#pragma unroll
                    for (int k = 0; k < PACK; ++k) pack.at[k] = row[k];
                    put<T, PACK>(target, pack);
                } else {
                    for (int k = 0; k < PACK && b + k < params.b; ++k) target[k] = row[k];
                }
            }
        }
    }
}
