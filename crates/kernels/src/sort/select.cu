// Selects the first k of chunks of rows, in their original order: for larger k than topk.cu.
//
// A chunk is in registers. The k-th key is found bit by bit; keys up to it are compacted.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME select_f32
#define T f32
#define THREADS 512
#define ITEMS 16
#endif

#include "sort/sort.cuh"

__device__ inline u32 sum_of_wave(u32 x) {
#if !defined(__AMDGCN__) && __CUDA_ARCH__ >= 800
    asm("redux.sync.add.u32 %0, %0, 0xffffffff;" : "+r"(x));
#else
#pragma unroll
    for (int by = WAVE / 2; by > 0; by /= 2) x += __shfl_xor_sync(0xffffffffu, x, by);
#endif
    return x;
}

// Block-wide sums, with double-buffered shared memory.
struct Sums {
    u32 (&smem)[2][WAVE];
    u32 buffer;
    __device__ inline u32 of(u32 x) {
        x = sum_of_wave(x);
        if (threadIdx.x % WAVE == 0) smem[buffer][threadIdx.x / WAVE] = x;
        __syncthreads();
        x = threadIdx.x % WAVE < WAVES ? smem[buffer][threadIdx.x % WAVE] : 0;
        buffer ^= 1;
        return sum_of_wave(x);
    }
};

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL_NAME(NAME, _select)(SORT_PARAMETERS) {
    SORT_CALL;
    __shared__ u32 smem[2][WAVE], firsts[ITEMS * WAVES];
    const u32 number = blockIdx.x / o.chunks, chunk = blockIdx.x - number * o.chunks;
    const u32 lane = threadIdx.x % WAVE, wave = threadIdx.x / WAVE;
    const u64 start = (u64)chunk * TILE;
    const u32 n = o.n - start < TILE ? (u32)(o.n - start) : TILE, k = o.keep < n ? o.keep : n;
    Sums sums = {smem, 0};

    Key keys[ITEMS], bound = LAST;
    call.load<THREADS>(o, number, start, n, threadIdx.x, dims, keys);
    // Elements beyond the chunk are excluded by their position.
    u32 within = n, last = n;
#pragma unroll 1
    for (int bit = KEY_BITS - 1; bit >= 0 && within > k; --bit) {
        const Key less = bound ^ (Key)1 << bit;
        u32 own = 0;
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) own += keys[i] <= less;
        own = sums.of(own);
        if (own >= k) {
            bound = less;
            within = own;
        }
    }
    if (within > k) {
        // Several keys equal the bound: the first of them are taken.
        u32 ahead = 0;
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) ahead += keys[i] < bound;
        const u32 rest = k - sums.of(ahead);
        last = 2 * TILE - 1;
#pragma unroll 1
        for (u32 bit = TILE; bit > 0; bit /= 2) {
            const u32 less = last ^ bit;
            u32 own = 0;
#pragma unroll
            for (int i = 0; i < ITEMS; ++i) own += keys[i] == bound && i * THREADS + threadIdx.x < less;
            if (sums.of(own) >= rest) last = less;
        }
    }
    u32 chosen = 0;
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        const bool in = keys[i] < bound || (keys[i] == bound && i * THREADS + threadIdx.x < last);
        chosen |= (u32)in << i;
        const Lanes lanes = __ballot_sync(0xffffffffu, in);
        if (lane == 0) firsts[i * WAVES + wave] = count(lanes);
    }
    __syncthreads();
    // Prefix sums of the counts: over all waves of previous items, and over previous waves.
    u32 before = 0, own = 0;
    if (threadIdx.x < ITEMS * WAVES) before = own = firsts[threadIdx.x];
#pragma unroll
    for (int by = 1; by < WAVE; by *= 2) {
        const u32 other = __shfl_up_sync(0xffffffffu, before, by);
        if (lane >= by) before += other;
    }
    if (lane == WAVE - 1) smem[sums.buffer][wave] = before;
    __syncthreads();
    for (u32 w = 0; w < wave && w < (ITEMS * WAVES + WAVE - 1) / WAVE; ++w) before += smem[sums.buffer][w];
    if (threadIdx.x < ITEMS * WAVES) firsts[threadIdx.x] = before - own;
    __syncthreads();
    const Row row(number, dims);
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        const bool in = chosen >> i & 1;
        const Lanes lanes = __ballot_sync(0xffffffffu, in);
        const u32 p = firsts[i * WAVES + wave] + count(lanes & (((Lanes)1 << lane) - 1));
        if (in) call.keep(o, row, number, chunk, p, keys[i], call.at(o, number, start + i * THREADS + threadIdx.x));
    }
}
