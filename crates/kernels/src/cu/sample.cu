// Picks a token of each row of logits: a block for each row.
//
// Weights are powers of e, as whole numbers in units of 2^-44 of the largest: their sums do not depend on the order, so that a row and a
// random number always give the same token. Which tokens are kept is found without sorting, digit by digit of the least logit kept.

struct Sample {
    // Steps: row, token; of the others, row.
    i64 logits[2], random, tokens, logs;
    u64 seed, offset;
    i32 vocabulary, top_k, greedy, padding;
    // 1 / temperature; the least weight that is kept.
    f32 sharpness, top_p, min_p, more_padding;
};

#define THREADS 512
#if defined(__AMDGCN__)
#define WAVE WARPWAVE_WAVE_SIZE
#else
#define WAVE 32
#endif
#define WAVES (THREADS / WAVE)
#define ONE (1ull << 44)
#define BINS 256
#define LEAST (-__int_as_float(0x7f800000))

// What is no number is never picked.
__device__ inline f32 logit_of(const Sample &s, const T *row, i32 token) {
    const f32 x = widen(row[token * s.logits[1]]);
    return x == x ? x : LEAST;
}
// Whole numbers in the order of the floats; equal floats are equal.
__device__ inline u32 key_of(f32 x) {
    const u32 bits = __float_as_uint(x == 0 ? 0.0f : x);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ inline u64 weight_of(const Sample &s, f32 x, f32 largest) {
    return x == largest ? ONE : (u64)(exp2f((x - largest) * s.sharpness * 1.44269504f) * (f32)ONE);
}

// What all threads have, put together by `f`, always in the same order; every thread gets it.
template <class V, class F> __device__ inline V together(V value, V *room, F f) {
#pragma unroll
    for (int apart = WAVE / 2; apart > 0; apart /= 2) value = f(value, __shfl_xor_sync(0xffffffffu, value, apart));
    __syncthreads();
    if (threadIdx.x % WAVE == 0) room[threadIdx.x / WAVE] = value;
    __syncthreads();
    value = room[0];
    for (int w = 1; w < WAVES; ++w) value = f(value, room[w]);
    return value;
}
__device__ inline u64 sum_of(u64 value, u64 *room) {
    return together(value, room, [](u64 a, u64 b) { return a + b; });
}

struct Room {
    u64 each[WAVES], bins[2][BINS], remaining;
    u32 digit;
};

// The largest key of which so much weight (or so many tokens, if they are counted) has this key or a larger one. It is at least `least`.
__device__ inline u32 threshold(const Sample &s, const T *row, f32 largest, bool counted, u32 least, u64 wanted, Room &room) {
    u32 prefix = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        __syncthreads();
        if (threadIdx.x < BINS) room.bins[0][threadIdx.x] = 0;
        __syncthreads();
        for (i32 first = 0; first < s.vocabulary; first += THREADS) {
            const i32 token = first + threadIdx.x;
            const f32 x = token < s.vocabulary ? logit_of(s, row, token) : LEAST;
            const u32 key = key_of(x), digit = key >> shift & 255;
            const bool counts = token < s.vocabulary && key >= least && (shift == 24 || key >> shift >> 8 == prefix);
            if (!__any_sync(0xffffffffu, counts)) continue;
            u64 weight = !counts ? 0 : counted ? 1 : weight_of(s, x, largest);
            // A wave with one digit adds once: many alike would wait for each other.
            const u32 common = __shfl_sync(0xffffffffu, digit, 0);
            if (__all_sync(0xffffffffu, digit == common)) {
#pragma unroll
                for (int apart = WAVE / 2; apart > 0; apart /= 2) weight += __shfl_xor_sync(0xffffffffu, weight, apart);
                if (threadIdx.x % WAVE == 0) atomicAdd(&room.bins[0][common], weight);
            } else if (weight != 0) {
                atomicAdd(&room.bins[0][digit], weight);
            }
        }
        // Sums from each bin to the last.
        int from = 0;
        for (int apart = 1; apart < BINS; apart *= 2, from = 1 - from) {
            __syncthreads();
            const int bin = threadIdx.x;
            if (bin < BINS) room.bins[1 - from][bin] = room.bins[from][bin] + (bin + apart < BINS ? room.bins[from][bin + apart] : 0);
        }
        __syncthreads();
        if (threadIdx.x < BINS) {
            const u64 here = room.bins[from][threadIdx.x], above = threadIdx.x + 1 < BINS ? room.bins[from][threadIdx.x + 1] : 0;
            if (above < wanted && (here >= wanted || threadIdx.x == 0)) {
                room.digit = threadIdx.x;
                room.remaining = wanted - above;
            }
        }
        __syncthreads();
        prefix = prefix << 8 | room.digit;
        wanted = room.remaining;
    }
    return prefix > least ? prefix : least;
}

// 64 random bits of a seed and a number: Philox 4x32 with 10 rounds.
__device__ inline u64 random_of(u64 seed, u64 number) {
    u32 a = (u32)number, b = (u32)(number >> 32), c = 0, d = 0, k = (u32)seed, l = (u32)(seed >> 32);
    for (int round = 0; round < 10; ++round) {
        const u32 high0 = __umulhi(0xD2511F53u, a), low0 = 0xD2511F53u * a, high1 = __umulhi(0xCD9E8D57u, c), low1 = 0xCD9E8D57u * c;
        a = high1 ^ b ^ k, b = low1, c = high0 ^ d ^ l, d = low0;
        k += 0x9E3779B9u, l += 0xBB67AE85u;
    }
    return (u64)b << 32 | a;
}

extern "C" __global__ void __launch_bounds__(THREADS) NAME(const T *logits, const f32 *random, u32 *tokens, f32 *logs, Sample s) {
    __shared__ Room room;
    __shared__ f32 floats[WAVES];
    const i64 index = blockIdx.x;
    const T *row = logits + index * s.logits[0];

    // The largest, and the first token that has it: in one number the key and what is left behind the token.
    u64 best = 0;
    for (i32 token = threadIdx.x; token < s.vocabulary; token += THREADS) {
        const u64 found = (u64)key_of(logit_of(s, row, token)) << 32 | (u32)~token;
        best = found > best ? found : best;
    }
    // Each thread has a token at least as large as this: those below it can often be passed over.
    const u32 usual = s.vocabulary < 4 * THREADS ? 0 : (u32)together(best >> 32, room.each, [](u64 a, u64 b) { return a < b ? a : b; });
    best = together(best, room.each, [](u64 a, u64 b) { return a > b ? a : b; });
    i32 picked = (i32)~(u32)best;
    const f32 largest = logit_of(s, row, picked);

    f32 sum = 0;
    u64 all = 0, weight_usual = 0, count_usual = 0;
    for (i32 token = threadIdx.x; token < s.vocabulary; token += THREADS) {
        const f32 x = logit_of(s, row, token);
        sum += x == largest ? 1.0f : exp2f((x - largest) * 1.44269504f);
        if (s.greedy) continue;
        const u64 weight = weight_of(s, x, largest);
        all += weight;
        if (key_of(x) >= usual) weight_usual += weight, ++count_usual;
    }
    sum = together(sum, floats, [](f32 a, f32 b) { return a + b; });

    if (!s.greedy) {
        all = sum_of(all, room.each);
        weight_usual = sum_of(weight_usual, room.each);
        count_usual = sum_of(count_usual, room.each);
        u32 least = 0;
        if (s.top_k > 0 && s.top_k < s.vocabulary) {
            least = threshold(s, row, largest, true, count_usual >= s.top_k ? usual : 0, s.top_k, room);
            all = 0;
            for (i32 token = threadIdx.x; token < s.vocabulary; token += THREADS) {
                const f32 x = logit_of(s, row, token);
                if (key_of(x) >= least) all += weight_of(s, x, largest);
            }
            all = sum_of(all, room.each);
        }
        if (s.top_p < 1) {
            u64 wanted = (u64)ceil((f64)s.top_p * (f64)all);
            wanted = wanted < 1 ? 1 : wanted < all ? wanted : all;
            const u32 from = usual > least && weight_usual >= wanted ? usual : least;
            least = threshold(s, row, largest, false, from, wanted, room);
        }
        // Each wave sums a run of tokens; the one in which the random place lies looks for it.
        const u64 least_weight = (u64)(s.min_p * (f32)ONE);
        const i32 run = (s.vocabulary + WAVES - 1) / WAVES, wave = threadIdx.x / WAVE, lane = threadIdx.x % WAVE;
        const i32 begin = wave * run, end = begin + run < s.vocabulary ? begin + run : s.vocabulary;
        auto kept = [&](i32 token) -> u64 {
            if (token >= end) return 0;
            const f32 x = logit_of(s, row, token);
            const u64 weight = weight_of(s, x, largest);
            return key_of(x) >= least && weight >= least_weight ? weight : 0;
        };
        u64 mine = 0;
        for (i32 token = begin + lane; token < end; token += WAVE) mine += kept(token);
        all = sum_of(mine, room.each);
        const u64 bits = random ? (u64)((f64)random[index * s.random] * 18446744073709551616.0) : random_of(s.seed, s.offset + index);
        // Below `all`; what is given as a random number may be anything.
        u64 place = __umul64hi(all, bits);
        if (place >= all) place = all - 1;
        int holder = 0;
        while (holder + 1 < WAVES && place >= room.each[holder]) place -= room.each[holder++];
        if (wave == holder) {
            for (i32 first = begin; first < end; first += WAVE) {
                const u64 weight = kept(first + lane);
                u64 upto = weight;
#pragma unroll
                for (int apart = 1; apart < WAVE; apart *= 2) {
                    const u64 before = __shfl_up_sync(0xffffffffu, upto, apart);
                    if (lane >= apart) upto += before;
                }
                if (place < upto && place >= upto - weight) room.digit = first + lane;
                const u64 total = __shfl_sync(0xffffffffu, upto, WAVE - 1);
                if (place < total) break;
                place -= total;
            }
        }
        __syncthreads();
        picked = room.digit;
    }
    if (threadIdx.x == 0) {
        tokens[index * s.tokens] = picked;
        if (logs) logs[index * s.logs] = logit_of(s, row, picked) == largest ? -logf(sum) : logit_of(s, row, picked) - largest - logf(sum);
    }
}
