// The largest logit of each row and its log probability. A row is divided into parts, one block each, which are then combined.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME greedy_f32
#define T f32
#define VECTORS 1
#define THREADS 256
#endif

#include "common/pdl.cuh"
#include "sample/logits.cuh"

struct Greedy {
    // Strides: row and token for logits; row for the others.
    i64 logits[2], tokens, logprobs;
    i32 vocabulary, parts;
};
// The key of the largest logit with the complement of its first token; and the sum of exponentials relative to it.
struct Part {
    u64 best;
    f32 sum, padding;
};

// Tokens per thread.
#define ITEMS 16
#if VECTORS
#define EACH (16 / (int)sizeof(T))
#else
#define EACH 1
#endif

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL_NAME(NAME, _partial)(const T *logits, Part *parts, Greedy g) {
    __shared__ u64 bests[WAVES];
    __shared__ f32 sums[WAVES];
    pdl_sync();
    const T *row = logits + (i64)(blockIdx.x / g.parts) * g.logits[0];
    const i32 first = blockIdx.x % g.parts * (ITEMS * THREADS) + threadIdx.x * EACH;
    f32 x[ITEMS];
#pragma unroll
    for (int k = 0; k < ITEMS; k += EACH) {
        const i32 token = first + k * THREADS;
#if VECTORS
        Pack<T, EACH> pack;
        if (token < g.vocabulary) pack = get<T, EACH>(row + token);
#pragma unroll
        for (int e = 0; e < EACH; ++e) x[k + e] = token < g.vocabulary ? logit_value(pack.at[e]) : NEG_INFINITY_F32;
#else
        x[k] = token < g.vocabulary ? logit_value(row[token * g.logits[1]]) : NEG_INFINITY_F32;
#endif
    }
    u64 best = 0;
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const i32 token = first + k / EACH * EACH * THREADS + k % EACH;
        const u64 found = (u64)key_of(x[k]) << 32 | (u32)~token;
        if (token < g.vocabulary && found > best) best = found;
    }
    best = block_reduce(best, bests, [](u64 a, u64 b) { return a > b ? a : b; });
    const f32 largest = float_of((u32)(best >> 32));
    f32 sum = 0;
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const i32 token = first + k / EACH * EACH * THREADS + k % EACH;
        if (token < g.vocabulary) sum += exp_relative(x[k], largest);
    }
    sum = block_reduce(sum, sums, [](f32 a, f32 b) { return a + b; });
    if (threadIdx.x == 0) {
        const Part part = {best, sum, 0};
        parts[blockIdx.x] = part;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) KERNEL_NAME(NAME, _combine)(u32 *tokens, f32 *logprobs, const Part *parts, Greedy g) {
    __shared__ u64 bests[WAVES];
    __shared__ f32 sums[WAVES];
    pdl_sync();
    parts += (i64)blockIdx.x * g.parts;
    u64 best = 0;
    for (i32 p = threadIdx.x; p < g.parts; p += THREADS) best = parts[p].best > best ? parts[p].best : best;
    best = block_reduce(best, bests, [](u64 a, u64 b) { return a > b ? a : b; });
    const f32 largest = float_of((u32)(best >> 32));
    f32 sum = 0;
    for (i32 p = threadIdx.x; p < g.parts; p += THREADS) sum += parts[p].sum * exp_relative(float_of((u32)(parts[p].best >> 32)), largest);
    sum = block_reduce(sum, sums, [](f32 a, f32 b) { return a + b; });
    if (threadIdx.x == 0) {
        tokens[blockIdx.x * g.tokens] = ~(u32)best;
        if (logprobs) logprobs[blockIdx.x * g.logprobs] = -logf(sum);
    }
}
