// The largest logit of each row, and how likely it is. A row is divided into parts, a block for each; then its parts are put together.

struct Greedy {
    // Steps: row, token; of the others, row.
    i64 logits[2], tokens, logs;
    i32 vocabulary, parts;
};
// The key of the largest logit, and what is left behind the first token that has it; powers of e of what the others have less, summed.
struct Part {
    u64 best;
    f32 sum, padding;
};

// Tokens of a thread, as many as a part has of them for each thread.
#define ITEMS 16
#if VECTORS
#define EACH (16 / (int)sizeof(T))
#else
#define EACH 1
#endif

extern "C" __global__ void __launch_bounds__(THREADS) SYMBOL(NAME, _parts)(const T *logits, Part *parts, Greedy g) {
    __shared__ u64 bests[WAVES];
    __shared__ f32 sums[WAVES];
    take_turn();
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
        for (int e = 0; e < EACH; ++e) x[k + e] = token < g.vocabulary ? number(pack.at[e]) : LEAST;
#else
        x[k] = token < g.vocabulary ? number(row[token * g.logits[1]]) : LEAST;
#endif
    }
    u64 best = 0;
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const i32 token = first + k / EACH * EACH * THREADS + k % EACH;
        const u64 found = (u64)key_of(x[k]) << 32 | (u32)~token;
        if (token < g.vocabulary && found > best) best = found;
    }
    best = together(best, bests, [](u64 a, u64 b) { return a > b ? a : b; });
    const f32 largest = float_of((u32)(best >> 32));
    f32 sum = 0;
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const i32 token = first + k / EACH * EACH * THREADS + k % EACH;
        if (token < g.vocabulary) sum += power_of(x[k], largest);
    }
    sum = together(sum, sums, [](f32 a, f32 b) { return a + b; });
    if (threadIdx.x == 0) {
        const Part part = {best, sum, 0};
        parts[blockIdx.x] = part;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) SYMBOL(NAME, _finish)(u32 *tokens, f32 *logs, const Part *parts, Greedy g) {
    __shared__ u64 bests[WAVES];
    __shared__ f32 sums[WAVES];
    take_turn();
    parts += (i64)blockIdx.x * g.parts;
    u64 best = 0;
    for (i32 p = threadIdx.x; p < g.parts; p += THREADS) best = parts[p].best > best ? parts[p].best : best;
    best = together(best, bests, [](u64 a, u64 b) { return a > b ? a : b; });
    const f32 largest = float_of((u32)(best >> 32));
    f32 sum = 0;
    for (i32 p = threadIdx.x; p < g.parts; p += THREADS) sum += parts[p].sum * power_of(float_of((u32)(parts[p].best >> 32)), largest);
    sum = together(sum, sums, [](f32 a, f32 b) { return a + b; });
    if (threadIdx.x == 0) {
        tokens[blockIdx.x * g.tokens] = ~(u32)best;
        if (logs) logs[blockIdx.x * g.logs] = -logf(sum);
    }
}
