// Stable radix sort of rows of any length, a digit of BITS at a time, lowest first.
//
// `_count` counts the digits of all passes. In a pass a block sorts a tile by one digit in shared memory, learns from the tiles before it
// where each of its digits starts in the result (decoupled look-back), and writes it there. Elements move unchanged, so that NaNs and zeros
// keep their bits; keys are computed where a digit is needed.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME radix_f32
#define T f32
#define THREADS 384
#define ITEMS 20
#define BITS 8
#endif

#include "common/look_back.cuh"
#include "sort/rank.cuh"

const int PASSES = (KEY_BITS + BITS - 1) / BITS;

extern __shared__ u64 smem[];

static_assert(DIGITS == 1, "a thread looks back for one digit");
static_assert(WAVES * RADIX * 4 <= TILE * max_of(sizeof(T), 4), "counts share the memory of a tile");

__device__ inline u32 digit_of(T x, Key flip, u32 shift) { return (u32)((key_of(x) ^ flip) >> shift) & (RADIX - 1); }

// Adds the digits of a part of a row to its counts, PASSES * RADIX per row.
extern "C" __global__ void __launch_bounds__(THREADS) KERNEL_NAME(NAME, _count)(const T *x, u32 *counts, SortParams o, Dims dims, u64 part) {
    __shared__ u32 bins[PASSES * RADIX];
    const u32 number = blockIdx.x / o.chunks;
    const u64 start = (blockIdx.x - number * o.chunks) * part, rest = o.n - start, n = rest < part ? rest : part;
    const Key flip = o.largest ? LAST : 0;
    const T *const from = x + Row(number, dims).in + start * o.stride;
    for (u32 b = threadIdx.x; b < PASSES * RADIX; b += THREADS) bins[b] = 0;
    __syncthreads();
#pragma unroll 8
    for (u64 i = threadIdx.x; i < n; i += THREADS) {
        const Key key = key_of(from[i * o.stride]) ^ flip;
#pragma unroll
        for (int pass = 0; pass < PASSES; ++pass) atomicAdd(&bins[pass * RADIX + ((u32)(key >> pass * BITS) & (RADIX - 1))], 1u);
    }
    __syncthreads();
    for (u32 b = threadIdx.x; b < PASSES * RADIX; b += THREADS) {
        if (bins[b]) atomicAdd(&counts[(u64)number * (PASSES * RADIX) + b], bins[b]);
    }
}

// A pass over tiles of all rows. `from` is null in the first pass, which reads `x`; `to` in the last, which writes `values` and `indices`.
// Without `indices` only elements are sorted.
extern "C" __global__ void __launch_bounds__(THREADS, 2) KERNEL_NAME(NAME, _pass)(
    const T *x, T *values, void *indices, const T *from, const u32 *from_at, T *to, u32 *to_at, u64 *words, const u32 *counts, u32 *next,
    SortParams o, Dims dims, u32 pass) {
    __shared__ u32 starts[RADIX], sums[WAVES], ticket;
    // One after another: the waves' counts, elements, original indices.
    u32 *const own = (u32 *)smem + threadIdx.x / WAVE * RADIX, *const places = (u32 *)smem;
    T *const elements = (T *)smem;
    const u32 lane = threadIdx.x % WAVE, first = threadIdx.x / WAVE * (WAVE * ITEMS) + lane, d = threadIdx.x, shift = pass * BITS;
    // Tiles in the order in which blocks start: a block waits only for blocks that run.
    if (threadIdx.x == 0) ticket = atomicAdd(next, 1u);
#pragma unroll
    for (int k = lane; k < RADIX; k += WAVE) own[k] = 0;
    __syncthreads();
    const u32 number = ticket / o.chunks, tile = ticket - number * o.chunks;
    const u64 start = (u64)tile * TILE, base = number * o.n;
    const u32 n = o.n - start < TILE ? (u32)(o.n - start) : TILE;
    const Key flip = o.largest ? LAST : 0;

    T items[ITEMS];
    // The rank, and above it the digit.
    u32 rank[ITEMS];
    const T *const in = from ? from + base + start : x + Row(number, dims).in + start * o.stride;
    if (n == TILE && (from || o.stride == 1)) {
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) items[i] = in[first + i * WAVE];
    } else {
        const u64 step = from ? 1 : o.stride;
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const u32 p = first + i * WAVE;
            items[i] = in[(p < n ? p : n - 1) * step];
        }
    }
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        // What is beyond the row comes last.
        const u32 digit = first + i * WAVE < n ? digit_of(items[i], flip, shift) : RADIX - 1;
        rank[i] = rank_in_wave(digit, own) | digit << 16;
    }
    __syncthreads();
    u64 *const word = words + (u64)ticket * RADIX + d;
    const u32 state = 2 * pass + 1;
    u32 total[1];
    total_counts((u32 *)smem, total);
    if (tile > 0 && d < RADIX) publish_word(word, (u64)state << 32 | total[0]);
    const u32 local = place_digits((u32 *)smem, total, sums);
    if (d < RADIX) starts[d] = local;
    __syncthreads();
    // Places in the tile, two per register.
    u32 slots[ITEMS / 2];
#pragma unroll
    for (int i = 0; i < ITEMS; i += 2) {
        slots[i / 2] = (rank[i] & 0xffff) + own[rank[i] >> 16] | ((rank[i + 1] & 0xffff) + own[rank[i + 1] >> 16]) << 16;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) elements[slots[i / 2] >> i % 2 * 16 & 0xffff] = items[i];
    u32 at[ITEMS];
    if (indices) {
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const u32 p = first + i * WAVE;
            at[i] = from ? from_at[base + start + (p < n ? p : n - 1)] : (u32)start + p;
        }
    }
    u32 before = 0;
    // The first tile starts from the counts of the whole row.
    if (tile == 0) before = sum_before(d < RADIX ? counts[((u64)number * PASSES + pass) * RADIX + d] : 0, sums);
    else if (d < RADIX) before = look_back<RADIX>(word - (u64)tile * RADIX, tile, state);
    if (d < RADIX) {
        publish_word(word, (u64)(state + 1) << 32 | (before + total[0]));
        starts[d] = before - starts[d];
    }
    __syncthreads();
    u32 position[ITEMS];
    const Row row(to ? 0 : number, dims);
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        const u32 p = i * THREADS + threadIdx.x;
        position[i] = p < n ? starts[digit_of(elements[p], flip, shift)] + p : ~0u;
    }
    if (to) {
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            if (position[i] < o.n) to[base + position[i]] = elements[i * THREADS + threadIdx.x];
        }
    } else if (values) {
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            if (position[i] < o.keep) values[row.values + position[i] * o.value_stride] = elements[i * THREADS + threadIdx.x];
        }
    }
    if (!indices) return;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) places[slots[i / 2] >> i % 2 * 16 & 0xffff] = at[i];
    __syncthreads();
    if (to) {
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            if (position[i] < o.n) to_at[base + position[i]] = places[i * THREADS + threadIdx.x];
        }
    } else {
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            if (position[i] < o.keep) write_index(o, indices, row.indices + position[i] * o.index_stride, places[i * THREADS + threadIdx.x]);
        }
    }
}
