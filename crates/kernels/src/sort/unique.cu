// Runs of equal elements of a sorted row: the distinct elements, the run of each element, and the lengths of the runs.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME unique_f32
#define T f32
#define THREADS 256
#define ITEMS 8
#endif

#include "common/look_back.cuh"
#include "sort/sort.cuh"

__device__ inline void write_number(void *to, u32 wide, u64 at, u64 number) {
    if (wide) ((i64 *)to)[at] = (i64)number;
    else ((u32 *)to)[at] = (u32)number;
}

// Each block a tile. `order` are the original positions; `inverse`, and `starts` of the runs, are null if not wanted. `found` are two words:
// the next tile, and the number of runs.
extern "C" __global__ void __launch_bounds__(THREADS) KERNEL_NAME(NAME, _runs)(
    const T *sorted, const u32 *order, T *values, void *inverse, u32 *starts, u64 *words, u64 *found, u64 n, u32 wide) {
    __shared__ u32 heads[ITEMS * WAVES], ticket;
    __shared__ u64 ahead;
    static_assert(ITEMS * WAVES <= THREADS, "a thread adds up a wave's elements");
    const u32 lane = threadIdx.x % WAVE, wave = threadIdx.x / WAVE;
    if (threadIdx.x == 0) ticket = atomicAdd((u32 *)found, 1u);
    __syncthreads();
    const u64 start = (u64)ticket * TILE;
    T items[ITEMS];
    Lanes firsts[ITEMS];
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        const u64 p = start + i * THREADS + threadIdx.x;
        items[i] = sorted[p < n ? p : n - 1];
        const bool first = p == 0 || (p < n && key_of(sorted[p - 1]) != key_of(items[i]));
        firsts[i] = __ballot_sync(0xffffffffu, first);
        if (lane == 0) heads[i * WAVES + wave] = count(firsts[i]);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        u32 all = 0;
        for (int k = 0; k < ITEMS * WAVES; ++k) {
            const u32 own = heads[k];
            heads[k] = all;
            all += own;
        }
        if (ticket > 0) publish_word(words + ticket, 1ull << 32 | all);
        ahead = look_back<1>(words, ticket, 1);
        publish_word(words + ticket, 2ull << 32 | (ahead + all));
        if (start + TILE >= n) found[1] = ahead + all;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        const u64 p = start + i * THREADS + threadIdx.x;
        if (p >= n) continue;
        const bool first = firsts[i] >> lane & 1;
        const u64 run = ahead + heads[i * WAVES + wave] + count(firsts[i] & (((Lanes)1 << lane) - 1)) + first - 1;
        if (first) values[run] = items[i];
        if (first && starts) starts[run] = (u32)p;
        if (inverse) write_number(inverse, wide, order[p], run);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL_NAME(NAME, _lengths)(const u32 *starts, void *counts, u64 runs, u64 n, u32 wide) {
    for (u64 run = (u64)blockIdx.x * THREADS + threadIdx.x; run < runs; run += (u64)gridDim.x * THREADS) {
        write_number(counts, wide, run, (run + 1 < runs ? starts[run + 1] : n) - starts[run]);
    }
}
