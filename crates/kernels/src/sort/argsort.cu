// Radix sort of chunks of rows: BITS of the key at a time, lowest first.
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

#include "sort/sort.cuh"

extern __shared__ u64 smem[];

#if defined(__AMDGCN__) && WAVE == 64
typedef u64 Lanes;
__device__ inline u32 count(Lanes lanes) { return __popcll(lanes); }
#else
typedef u32 Lanes;
__device__ inline u32 count(Lanes lanes) { return __popc(lanes); }
#endif

const int RADIX = 1 << BITS;
// Digits per thread in the prefix sum.
const int DIGITS = (RADIX + THREADS - 1) / THREADS;

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
            const u32 digit = (u32)(keys[i] >> shift) & (RADIX - 1);
            const Lanes lanes = match_digit(digit);
            const u32 before = count(lanes & (((Lanes)1 << lane) - 1)), old = own[digit];
            __syncwarp();
            if (before == 0) own[digit] = old + count(lanes);
            __syncwarp();
            at[i] |= (old + before) << 16;
        }
        __syncthreads();
        // First position of every digit in every wave: sums over the waves, then over the digits.
        u32 total[DIGITS], sum = 0;
#pragma unroll
        for (int k = 0; k < DIGITS; ++k) {
            const u32 d = threadIdx.x * DIGITS + k;
            total[k] = 0;
            if (d < RADIX) {
#pragma unroll
                for (int w = 0; w < WAVES; ++w) total[k] += counts[w * RADIX + d];
            }
            sum += total[k];
        }
        u32 before = sum;
#pragma unroll
        for (int by = 1; by < WAVE; by *= 2) {
            const u32 other = __shfl_up_sync(0xffffffffu, before, by);
            if (lane >= by) before += other;
        }
        if (lane == WAVE - 1) sums[wave] = before;
        before -= sum;
        __syncthreads();
#pragma unroll
        for (int w = 0; w < WAVES; ++w) before += w < wave ? sums[w] : 0;
#pragma unroll
        for (int k = 0; k < DIGITS; ++k) {
            const u32 d = threadIdx.x * DIGITS + k;
            if (d < RADIX) {
                u32 position = before;
#pragma unroll
                for (int w = 0; w < WAVES; ++w) {
                    const u32 own_count = counts[w * RADIX + d];
                    counts[w * RADIX + d] = position;
                    position += own_count;
                }
            }
            before += total[k];
        }
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

// How many of the first `d` of the merged runs come from the first run; it precedes equals (merge path).
template <class Count> __device__ inline Count split(const Key *a, Count a_size, const Key *b, Count b_size, Count d) {
    Count low = d > b_size ? d - b_size : 0, high = d < a_size ? d : a_size;
    while (low < high) {
        const Count middle = (low + high) / 2;
        if (a[middle] <= b[d - 1 - middle]) low = middle + 1;
        else high = middle;
    }
    return low;
}

// Merges two adjacent runs of each row, each block a part. `chunks` are the parts of a row, `keep` the length of its result.
const int MERGED = 8, PART = 256 * MERGED;
extern "C" __global__ void __launch_bounds__(256) KERNEL_NAME(NAME, _merge)(SORT_PARAMETERS, u64 run) {
    SORT_CALL;
    __shared__ Key keys[PART];
    __shared__ u16 order[PART];
    __shared__ u64 splits[2];
    const u32 number = blockIdx.x / o.chunks;
    const u64 first = (u64)(blockIdx.x - number * o.chunks) * PART, base = number * o.n, pair = first / (2 * run) * (2 * run);
    // The runs, and the block's part [begin, end) of their merge.
    const u64 a_size = o.n - pair < run ? o.n - pair : run, left = o.n - pair - a_size, b_size = left < run ? left : run;
    const Key *const a = from_keys + base + pair, *const b = a + a_size;
    const u64 begin = first - pair, end = begin + PART < a_size + b_size ? begin + PART : a_size + b_size;
    if (threadIdx.x < 2) splits[threadIdx.x] = split<u64>(a, a_size, b, b_size, threadIdx.x ? end : begin);
    __syncthreads();
    const u64 a_begin = splits[0], b_begin = begin - a_begin;
    const u32 a_part = (u32)(splits[1] - a_begin), all = (u32)(end - begin);
#pragma unroll
    for (int i = 0; i < MERGED; ++i) {
        const u32 p = i * 256 + threadIdx.x;
        if (p < all) keys[p] = p < a_part ? a[a_begin + p] : b[b_begin + (p - a_part)];
    }
    __syncthreads();
    const u32 mine = threadIdx.x * MERGED;
    if (mine < all) {
        u32 from_a = split<u32>(keys, a_part, keys + a_part, all - a_part, mine), from_b = a_part + mine - from_a;
#pragma unroll
        for (int i = 0; i < MERGED; ++i) {
            const bool first_run = from_b >= all || (from_a < a_part && keys[from_a] <= keys[from_b]);
            order[mine + i] = (u16)(first_run ? from_a++ : from_b++);
        }
    }
    __syncthreads();
    // Where the parts of the two runs start.
    const u64 from = base + pair, at_a = from + a_begin, at_b = from + a_size + b_begin - a_part;
    if (to_keys) {
        for (u32 p = threadIdx.x; p < all; p += 256) {
            const u32 q = order[p];
            to_keys[base + first + p] = keys[q];
            to_at[base + first + p] = from_at[(q < a_part ? at_a : at_b) + q];
        }
    } else {
        const Row row(number, dims);
        for (u32 p = threadIdx.x; p < all && first + p < o.keep; p += 256) {
            const u32 q = order[p];
            call.write(o, row, first + p, from_at[(q < a_part ? at_a : at_b) + q]);
        }
    }
}
