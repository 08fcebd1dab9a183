// Penalizes tokens that occurred before, in place: a block per row, a thread per previous token.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME penalty_f32_u32
#define T f32
#define U u32
#endif

#include "common/types.cuh"

struct Penalty {
    // Strides: row, token.
    i64 logits[2], tokens[2];
    i32 vocabulary, length;
    f32 repetition, presence, frequency, padding;
};

extern "C" __global__ void NAME(T *logits, const U *token_ids, Penalty p) {
    const U *tokens = token_ids + blockIdx.x * p.tokens[0];
    for (i32 i = threadIdx.x; i < p.length; i += blockDim.x) {
        const i64 token = (i64)tokens[i * p.tokens[1]];
        if (token < 0 || token >= p.vocabulary) continue;
        // The first occurrence counts all.
        i32 count = 0;
        bool first = true;
        for (i32 j = 0; j < p.length && first; ++j) {
            if ((i64)tokens[j * p.tokens[1]] != token) continue;
            first = j >= i;
            ++count;
        }
        if (!first) continue;
        T &logit = logits[blockIdx.x * p.logits[0] + token * p.logits[1]];
        f32 x = widen(logit);
        x = x > 0 ? x / p.repetition : x * p.repetition;
        logit = Narrow<T>::from(x - p.presence - p.frequency * (f32)count);
    }
}
