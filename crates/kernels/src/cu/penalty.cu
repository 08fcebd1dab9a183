// Makes tokens that a text has already less likely, in place: a block for each row, a thread for each token of its text.

struct Penalty {
    // Steps: row, token.
    i64 logits[2], text[2];
    i32 vocabulary, length;
    f32 repetition, presence, frequency, padding;
};

extern "C" __global__ void NAME(T *logits, const U *text, Penalty p) {
    const U *tokens = text + blockIdx.x * p.text[0];
    for (i32 i = threadIdx.x; i < p.length; i += blockDim.x) {
        const i64 token = (i64)tokens[i * p.text[1]];
        if (token < 0 || token >= p.vocabulary) continue;
        // The first of its kind counts them all.
        i32 count = 0;
        bool first = true;
        for (i32 j = 0; j < p.length && first; ++j) {
            if ((i64)tokens[j * p.text[1]] != token) continue;
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
