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
// Keys that are kept aside at most.
#define ASIDE 8192
// Reads under way at once.
#define UNROLL 8
#define LEAST (-__int_as_float(0x7f800000))

// What is no number is never picked.
__device__ inline f32 number(T element) {
    const f32 x = widen(element);
    return x == x ? x : LEAST;
}
__device__ inline f32 logit_of(const Sample &s, const T *row, i32 token) { return number(row[token * s.logits[1]]); }

// Calls f(token, logit) for all tokens, each thread for some.
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
            for (int e = 0; e < EACH; ++e) f(pack * EACH + e, number(packs[u].at[e]));
        }
    }
#else
#pragma unroll 8
    for (i32 token = threadIdx.x; token < s.vocabulary; token += THREADS) f(token, logit_of(s, row, token));
#endif
}
// Whole numbers in the order of the floats; equal floats are equal.
__device__ inline u32 key_of(f32 x) {
    const u32 bits = __float_as_uint(x == 0 ? 0.0f : x);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ inline f32 float_of(u32 key) { return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key); }
__device__ inline u64 weight_of(const Sample &s, f32 x, f32 largest) {
    return x == largest ? ONE : (u64)(exp2f((x - largest) * s.sharpness * 1.44269504f) * (f32)ONE);
}

// e to the power of what lies between two.
__device__ inline f32 power(f32 x, f32 largest) { return x == largest ? 1.0f : exp2f((x - largest) * 1.44269504f); }

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
    u32 digit, count, aside[ASIDE];
};

// The largest key of which so much weight (or so many tokens, if they are counted) has this key or a larger one. It is at least `least`.
// Where all that count are aside, the row is not read again.
__device__ inline u32 threshold(const Sample &s, const T *row, f32 largest, bool counted, bool aside, u32 least, u64 wanted, Room &room) {
    u32 prefix = 0;
    const i32 n = aside ? room.count : s.vocabulary;
    for (int shift = 24; shift >= 0; shift -= 8) {
        __syncthreads();
        if (threadIdx.x < BINS) room.bins[0][threadIdx.x] = 0;
        __syncthreads();
        for (i32 first = 0; first < n; first += THREADS) {
            const i32 i = first + threadIdx.x;
            const u32 key = i >= n ? 0 : aside ? room.aside[i] : key_of(logit_of(s, row, i)), digit = key >> shift & 255;
            const bool counts = i < n && key >= least && (shift == 24 || key >> shift >> 8 == prefix);
            if (!__any_sync(0xffffffffu, counts)) continue;
            u64 weight = !counts ? 0 : counted ? 1 : weight_of(s, float_of(key), largest);
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

extern "C" __global__ void __launch_bounds__(THREADS, 1) NAME(const T *logits, const f32 *random, u32 *tokens, f32 *logs, Sample s) {
    __shared__ Room room;
    __shared__ f32 floats[WAVES];
    const i64 index = blockIdx.x;
    const T *row = logits + index * s.logits[0];

    // The largest, and the first token that has it; of a greedy pick the sum of what others are beside it on the way, all in one go.
    f32 most = LEAST, sum = 0;
    i32 first = -1;
    const bool at_once = s.greedy && logs;
    each(s, row, [&](i32 token, f32 x) {
        if (x > most || first < 0) {
            if (at_once) sum *= power(most, x);
            most = x, first = token;
        }
        if (at_once) sum += power(x, most);
    });
    // In one number the key and what is left behind the token.
    u64 best = first < 0 ? 0 : (u64)key_of(most) << 32 | (u32)~first;
    // Each thread has a token at least as large as this: those below it can often be passed over.
    u32 usual = (u32)together(best >> 32, room.each, [](u64 a, u64 b) { return a < b ? a : b; });
    if (s.vocabulary < 4 * THREADS) usual = 0;
    best = together(best, room.each, [](u64 a, u64 b) { return a > b ? a : b; });
    i32 picked = (i32)~(u32)best;
    const f32 largest = float_of((u32)(best >> 32));

    if (threadIdx.x == 0) room.count = 0;
    __syncthreads();
    if (s.greedy) {
        sum *= power(most, largest);
    } else {
        u64 all = 0, weight_aside = 0;
        each(s, row, [&](i32, f32 x) {
            if (logs) sum += power(x, largest);
            const u64 weight = weight_of(s, x, largest);
            all += weight;
            const u32 key = key_of(x);
            if (key < usual) return;
            weight_aside += weight;
            const u32 slot = atomicAdd(&room.count, 1u);
            if (slot < ASIDE) room.aside[slot] = key;
        });
        all = sum_of(all, room.each);
        weight_aside = sum_of(weight_aside, room.each);
        const u32 count = room.count;
        u32 least = 0;
        if (s.top_k > 0 && s.top_k < s.vocabulary) {
            const bool aside = count <= ASIDE && count >= s.top_k;
            least = threshold(s, row, largest, true, aside, 0, s.top_k, room);
            all = 0;
            if (aside) {
                for (u32 i = threadIdx.x; i < count; i += THREADS) {
                    const u32 key = room.aside[i];
                    all += key >= least ? weight_of(s, float_of(key), largest) : 0;
                }
            } else {
                each(s, row, [&](i32, f32 x) { all += key_of(x) >= least ? weight_of(s, x, largest) : 0; });
            }
            all = sum_of(all, room.each);
        }
        if (s.top_p < 1) {
            u64 wanted = (u64)ceil((f64)s.top_p * (f64)all);
            wanted = wanted < 1 ? 1 : wanted < all ? wanted : all;
            const bool aside = count <= ASIDE && (least >= usual || weight_aside >= wanted);
            least = threshold(s, row, largest, false, aside, least, wanted, room);
        }
        const u64 least_weight = (u64)(s.min_p * (f32)ONE);
        auto kept = [&](i32 token) -> u64 {
            const f32 x = logit_of(s, row, token);
            const u64 weight = weight_of(s, x, largest);
            return key_of(x) >= least && weight >= least_weight ? weight : 0;
        };
        // Each wave sums a run of tokens; the run in which the random place lies is divided again, until one wave can look for it.
        const i32 wave = threadIdx.x / WAVE, lane = threadIdx.x % WAVE;
        i32 begin = 0, end = s.vocabulary;
        u64 place = 0;
        do {
            const i32 run = (end - begin + WAVES - 1) / WAVES, from = begin + wave * run, to = from + run < end ? from + run : end;
            u64 mine = 0;
#pragma unroll 8
            for (i32 token = from + lane; token < to; token += WAVE) mine += kept(token);
            const u64 total = sum_of(mine, room.each);
            if (begin == 0 && end == s.vocabulary) {
                const u64 bits =
                    random ? (u64)((f64)random[index * s.random] * 18446744073709551616.0) : random_of(s.seed, s.offset + index);
                place = __umul64hi(total, bits);
                // What is given as a random number may be anything.
                if (place >= total) place = total - 1;
            }
            int holder = 0;
            while (holder + 1 < WAVES && place >= room.each[holder]) place -= room.each[holder++];
            begin += holder * run;
            end = begin + run < end ? begin + run : end;
        } while (end - begin > 4 * WAVE);
        // Whatever the weights: what is picked is a token.
        if (threadIdx.x == 0) room.digit = picked;
        __syncthreads();
        if (wave == 0) {
            for (i32 first = begin; first < end; first += WAVE) {
                const u64 weight = first + lane < end ? kept(first + lane) : 0;
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
    if (logs) sum = together(sum, floats, [](f32 a, f32 b) { return a + b; });
    if (threadIdx.x == 0) {
        const f32 x = logit_of(s, row, picked);
        tokens[index * s.tokens] = picked;
        if (logs) logs[index * s.logs] = x == largest ? -logf(sum) : x - largest - logf(sum);
    }
}
