// Ranks of elements by a digit of BITS: within a wave by ballots, within a block by sums of the waves' counts.

#pragma once

#include "sort/sort.cuh"

const int RADIX = 1 << BITS;
// Digits per thread where a block sums counts.
const int DIGITS = (RADIX + THREADS - 1) / THREADS;

// The lanes with the same digit.
__device__ inline Lanes match_digit(u32 digit) {
    Lanes lanes = ~(Lanes)0;
#pragma unroll
    for (int bit = 0; bit < BITS; ++bit) {
        const bool set = digit >> bit & 1;
        const Lanes votes = __ballot_sync(0xffffffffu, set);
        lanes &= set ? votes : ~votes;
    }
    return lanes;
}

// Returns how many elements of the wave with this digit came before, and counts this one in `own`, the wave's counts.
__device__ inline u32 rank_in_wave(u32 digit, u32 *own) {
    const Lanes lanes = match_digit(digit);
    const u32 before = count(lanes & (((Lanes)1 << threadIdx.x % WAVE) - 1)), old = own[digit];
    __syncwarp();
    if (before == 0) own[digit] = old + count(lanes);
    __syncwarp();
    return old + before;
}

// The sum of `x` over the threads before this one. `sums` is shared memory of WAVES numbers, which a barrier separates from its last use.
__device__ inline u32 sum_before(u32 x, u32 *sums) {
    const u32 lane = threadIdx.x % WAVE, wave = threadIdx.x / WAVE;
    u32 before = x;
#pragma unroll
    for (int by = 1; by < WAVE; by *= 2) {
        const u32 other = __shfl_up_sync(0xffffffffu, before, by);
        if (lane >= by) before += other;
    }
    if (lane == WAVE - 1) sums[wave] = before;
    before -= x;
    __syncthreads();
#pragma unroll
    for (int w = 0; w < WAVES; ++w) before += w < wave ? sums[w] : 0;
    return before;
}

// Sums the counts of all waves for this thread's digits.
__device__ inline void total_counts(const u32 *counts, u32 (&total)[DIGITS]) {
#pragma unroll
    for (int k = 0; k < DIGITS; ++k) {
        const u32 d = threadIdx.x * DIGITS + k;
        total[k] = 0;
        if (d < RADIX) {
#pragma unroll
            for (int w = 0; w < WAVES; ++w) total[k] += counts[w * RADIX + d];
        }
    }
}

// Replaces the counts by the first position of each digit in each wave. Returns the first position of this thread's digits.
__device__ inline u32 place_digits(u32 *counts, const u32 (&total)[DIGITS], u32 *sums) {
    u32 sum = 0;
#pragma unroll
    for (int k = 0; k < DIGITS; ++k) sum += total[k];
    const u32 first = sum_before(sum, sums);
    u32 position = first;
#pragma unroll
    for (int k = 0; k < DIGITS; ++k) {
        const u32 d = threadIdx.x * DIGITS + k;
        if (d < RADIX) {
#pragma unroll
            for (int w = 0; w < WAVES; ++w) {
                const u32 own_count = counts[w * RADIX + d];
                counts[w * RADIX + d] = position;
                position += own_count;
            }
        }
    }
    return first;
}
