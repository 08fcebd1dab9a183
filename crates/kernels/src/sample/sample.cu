// Samples a token per row of logits: a block per row.
//
// Weights are exponentials as integers in units of 2^-44 of the largest: sums do not depend on the order, so a row and a random number
// always give the same token. The thresholds of top-k and top-p are found without sorting, digit by digit (radix select).

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME sample_f32
#define T f32
#define VECTORS 1
#define THREADS 512
#endif

#include "common/philox.cuh"
#include "sample/logits.cuh"

struct Sample {
    // Strides: row and token for logits; row for the others.
    i64 logits[2], random, tokens, logprobs;
    u64 seed, offset;
    i32 vocabulary, top_k;
    // 1 / temperature; top_p; the smallest kept weight relative to the largest.
    f32 inv_temperature, top_p, min_p, padding;
};

#define ONE (1ull << 44)
#define BINS 256
// The most candidate keys kept in shared memory.
#define MAX_CANDIDATES 8192
// Loads in flight.
#define UNROLL 4

__device__ inline f32 logit_of(const Sample &s, const T *row, i32 token) { return logit_value(row[token * s.logits[1]]); }

// Calls f(token, logit) for all tokens, distributed over the threads.
template <class F> __device__ inline void each(const Sample &s, const T *row, F f) {
#if VECTORS
    const int EACH = 16 / sizeof(T);
    for (i32 first = threadIdx.x; first < s.vocabulary / EACH; first += UNROLL * THREADS) {
        Pack<T, EACH> packs[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const i32 pack = first + u * THREADS;
            if (pack < s.vocabulary / EACH) packs[u] = get<T, EACH>(row + (i64)pack * EACH);
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const i32 pack = first + u * THREADS;
            if (pack >= s.vocabulary / EACH) break;
#pragma unroll
            for (int e = 0; e < EACH; ++e) f(pack * EACH + e, logit_value(packs[u].at[e]));
        }
    }
#else
#pragma unroll 8
    for (i32 token = threadIdx.x; token < s.vocabulary; token += THREADS) f(token, logit_of(s, row, token));
#endif
}
__device__ inline u64 weight_of(const Sample &s, f32 x, f32 largest) {
    return x == largest ? ONE : (u64)(exp2f((x - largest) * s.inv_temperature * 1.44269504f) * (f32)ONE);
}

__device__ inline u64 sum_of(u64 value, u64 *smem) {
    return block_reduce(value, smem, [](u64 a, u64 b) { return a + b; });
}

struct SharedState {
    u64 each[WAVES], bins[2][BINS], remaining;
    u32 digit, count, candidates[MAX_CANDIDATES];
};

// The largest key such that keys >= it have the target weight (or count, if `counted`). At least `least`. If all that count are candidates,
// the row is not read again.
__device__ inline u32 threshold(const Sample &s, const T *row, f32 largest, bool counted, bool candidates, u32 least, u64 target, SharedState &smem) {
    u32 prefix = 0;
    const i32 n = candidates ? smem.count : s.vocabulary;
    for (int shift = 24; shift >= 0; shift -= 8) {
        __syncthreads();
        if (threadIdx.x < BINS) smem.bins[0][threadIdx.x] = 0;
        __syncthreads();
        for (i32 first = 0; first < n; first += THREADS) {
            const i32 i = first + threadIdx.x;
            const u32 key = i >= n ? 0 : candidates ? smem.candidates[i] : key_of(logit_of(s, row, i)), digit = key >> shift & 255;
            const bool counts = i < n && key >= least && (shift == 24 || key >> shift >> 8 == prefix);
            if (!__any_sync(0xffffffffu, counts)) continue;
            u64 weight = !counts ? 0 : counted ? 1 : weight_of(s, float_of(key), largest);
            // If a wave has one digit, it adds once, to avoid contention.
            const u32 common = __shfl_sync(0xffffffffu, digit, 0);
            if (__all_sync(0xffffffffu, digit == common)) {
#pragma unroll
                for (int offset = WAVE / 2; offset > 0; offset /= 2) weight += __shfl_xor_sync(0xffffffffu, weight, offset);
                if (threadIdx.x % WAVE == 0) atomicAdd(&smem.bins[0][common], weight);
            } else if (weight != 0) {
                atomicAdd(&smem.bins[0][digit], weight);
            }
        }
        // Suffix sums of the bins.
        int from = 0;
        for (int offset = 1; offset < BINS; offset *= 2, from = 1 - from) {
            __syncthreads();
            const int bin = threadIdx.x;
            if (bin < BINS) smem.bins[1 - from][bin] = smem.bins[from][bin] + (bin + offset < BINS ? smem.bins[from][bin + offset] : 0);
        }
        __syncthreads();
        if (threadIdx.x < BINS) {
            const u64 here = smem.bins[from][threadIdx.x], above = threadIdx.x + 1 < BINS ? smem.bins[from][threadIdx.x + 1] : 0;
            if (above < target && (here >= target || threadIdx.x == 0)) {
                smem.digit = threadIdx.x;
                smem.remaining = target - above;
            }
        }
        __syncthreads();
        prefix = prefix << 8 | smem.digit;
        target = smem.remaining;
    }
    return prefix > least ? prefix : least;
}

extern "C" __global__ void __launch_bounds__(THREADS) NAME(const T *logits, const f32 *random, u32 *tokens, f32 *logprobs, Sample s) {
    __shared__ SharedState smem;
    __shared__ f32 floats[WAVES];
    const i64 index = blockIdx.x;
    const T *row = logits + index * s.logits[0];

    // The largest logit and its first token, as one number: the key and the complement of the token.
    u64 best = 0;
    each(s, row, [&](i32 token, f32 x) {
        const u64 found = (u64)key_of(x) << 32 | (u32)~token;
        best = found > best ? found : best;
    });
    // Every thread has a token at least this large: smaller ones can often be skipped.
    u32 common_key = (u32)block_reduce(best >> 32, smem.each, [](u64 a, u64 b) { return a < b ? a : b; });
    if (s.vocabulary < 4 * THREADS) common_key = 0;
    best = block_reduce(best, smem.each, [](u64 a, u64 b) { return a > b ? a : b; });
    i32 picked = (i32)~(u32)best;
    const f32 largest = float_of((u32)(best >> 32));

    f32 sum = 0;
    if (threadIdx.x == 0) smem.count = 0;
    __syncthreads();
    u64 all = 0, candidate_weight = 0;
    each(s, row, [&](i32, f32 x) {
        if (logprobs) sum += exp_relative(x, largest);
        const u64 weight = weight_of(s, x, largest);
        all += weight;
        const u32 key = key_of(x);
        if (key < common_key) return;
        candidate_weight += weight;
        const u32 slot = atomicAdd(&smem.count, 1u);
        if (slot < MAX_CANDIDATES) smem.candidates[slot] = key;
    });
    all = sum_of(all, smem.each);
    candidate_weight = sum_of(candidate_weight, smem.each);
    const u32 count = smem.count;
    u32 least = 0;
    if (s.top_k > 0 && s.top_k < s.vocabulary) {
        const bool candidates = count <= MAX_CANDIDATES && count >= s.top_k;
        least = threshold(s, row, largest, true, candidates, 0, s.top_k, smem);
        all = 0;
        if (candidates) {
            for (u32 i = threadIdx.x; i < count; i += THREADS) {
                const u32 key = smem.candidates[i];
                all += key >= least ? weight_of(s, float_of(key), largest) : 0;
            }
        } else {
            each(s, row, [&](i32, f32 x) { all += key_of(x) >= least ? weight_of(s, x, largest) : 0; });
        }
        all = sum_of(all, smem.each);
    }
    if (s.top_p < 1) {
        u64 target = (u64)ceil((f64)s.top_p * (f64)all);
        target = target < 1 ? 1 : target < all ? target : all;
        const bool candidates = count <= MAX_CANDIDATES && (least >= common_key || candidate_weight >= target);
        least = threshold(s, row, largest, false, candidates, least, target, smem);
    }
    const u64 least_weight = (u64)(s.min_p * (f32)ONE);
    auto kept = [&](i32 token) -> u64 {
        const f32 x = logit_of(s, row, token);
        const u64 weight = weight_of(s, x, largest);
        return key_of(x) >= least && weight >= least_weight ? weight : 0;
    };
    // Each wave sums a run of tokens; the run that contains the random position is divided again, until one wave can search it.
    const i32 wave = threadIdx.x / WAVE, lane = threadIdx.x % WAVE;
    i32 begin = 0, end = s.vocabulary;
    u64 place = 0;
    do {
        const i32 run = (end - begin + WAVES - 1) / WAVES, from = begin + wave * run, to = from + run < end ? from + run : end;
        u64 mine = 0;
#pragma unroll 8
        for (i32 token = from + lane; token < to; token += WAVE) mine += kept(token);
        const u64 total = sum_of(mine, smem.each);
        if (begin == 0 && end == s.vocabulary) {
            const Philox at = {s.seed, 0, s.offset};
            const uint4 words = philox(at, index);
            const u64 bits = random ? (u64)((f64)random[index * s.random] * 18446744073709551616.0) : (u64)words.y << 32 | words.x;
            place = __umul64hi(total, bits);
            // Given random numbers may be anything.
            if (place >= total) place = total - 1;
        }
        int holder = 0;
        while (holder + 1 < WAVES && place >= smem.each[holder]) place -= smem.each[holder++];
        begin += holder * run;
        end = begin + run < end ? begin + run : end;
    } while (end - begin > 4 * WAVE);
    // Whatever the weights are, a valid token is picked.
    if (threadIdx.x == 0) smem.digit = picked;
    __syncthreads();
    if (wave == 0) {
        for (i32 first = begin; first < end; first += WAVE) {
            const u64 weight = first + lane < end ? kept(first + lane) : 0;
            u64 upto = weight;
#pragma unroll
            for (int offset = 1; offset < WAVE; offset *= 2) {
                const u64 before = __shfl_up_sync(0xffffffffu, upto, offset);
                if (lane >= offset) upto += before;
            }
            if (place < upto && place >= upto - weight) smem.digit = first + lane;
            const u64 total = __shfl_sync(0xffffffffu, upto, WAVE - 1);
            if (place < total) break;
            place -= total;
        }
    }
    __syncthreads();
    picked = smem.digit;
    if (logprobs) sum = block_reduce(sum, floats, [](f32 a, f32 b) { return a + b; });
    if (threadIdx.x == 0) {
        const f32 x = logit_of(s, row, picked);
        tokens[index * s.tokens] = picked;
        if (logprobs) logprobs[index * s.logprobs] = x == largest ? -logf(sum) : x - largest - logf(sum);
    }
}
