// Radix sort of rows, or chunks of them, in shared memory: BITS of the key at a time, lowest first.
//
// A wave has WAVE * ITEMS consecutive elements; lanes with equal digits find each other by ballots, so the result is deterministic.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME argsort_f32
#define T f32
#define THREADS 256
#define ITEMS 16
#define BITS 8
#endif

#include "sort/rank.cuh"

extern __shared__ u64 smem[];

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL_NAME(NAME, _tile)(SORT_PARAMETERS) {
    SORT_CALL;
    Key *const keys_smem = (Key *)smem;
    u32 *const counts = (u32 *)(keys_smem + TILE), *const sums = counts + WAVES * RADIX;
    u16 *const at_room = (u16 *)(sums + WAVES);
    const u32 number = blockIdx.x / o.chunks, chunk = blockIdx.x - number * o.chunks;
    const u32 lane = threadIdx.x % WAVE, wave = threadIdx.x / WAVE, first = wave * (WAVE * ITEMS) + lane;
    const u64 start = (u64)chunk * TILE;
    const u32 n = o.n - start < TILE ? (u32)(o.n - start) : TILE;
    u32 *const own = counts + wave * RADIX;

    Key keys[ITEMS];
    // Original position in the low half, rank within the wave in the high half: registers limit large tiles.
    u32 at[ITEMS];
    call.load<WAVE>(o, number, start, n, first, dims, keys);
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) at[i] = first + i * WAVE;
#pragma unroll 1
    for (int shift = 0; shift < KEY_BITS; shift += BITS) {
        for (int d = lane; d < RADIX; d += WAVE) own[d] = 0;
        __syncwarp();
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            at[i] |= rank_in_wave((u32)(keys[i] >> shift) & (RADIX - 1), own) << 16;
        }
        __syncthreads();
        u32 total[DIGITS];
        total_counts(counts, total);
        place_digits(counts, total, sums);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            at[i] += own[(u32)(keys[i] >> shift) & (RADIX - 1)] << 16;
        }
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const u32 position = at[i] >> 16;
            keys_smem[position] = keys[i];
            at_room[position] = (u16)at[i];
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            keys[i] = keys_smem[first + i * WAVE];
            at[i] = at_room[first + i * WAVE];
        }
    }
    const Row row(number, dims);
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        const u32 p = first + i * WAVE;
        if (p >= n || p >= o.keep) continue;
        call.keep(o, row, number, chunk, p, keys[i], call.at(o, number, start + at[i]));
    }
}
