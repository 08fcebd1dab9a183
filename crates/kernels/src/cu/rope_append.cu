// Rotary embedding of queries and keys, and the keys and values into a cache, in one go.
//
// T becomes U, which the queries' result and the cache are of, and V counts places and slots. A slot is block by block of the whole pool; a
// token whose slot is nowhere is left out of the cache. A thread has two packs of a head: of the first units the halves of EACH pairs.
// TOGETHER says that a pair stands together; otherwise its second stands in the second half of what is turned.

struct RopeAppend {
    // Of queries, keys and values, and of what they become; in a pool a block is a sequence.
    Steps from[3], to[3];
    i32 places[2], slots[2];
    // Rows are all tokens.
    i32 frequencies, tokens, rows, heads, kv_heads, dim, pairs, blocks, block_keys, padding;
    f64 factor;
};

#define EACH (VECTORS ? 16 / (int)(sizeof(T) > sizeof(U) ? sizeof(T) : sizeof(U)) : 1)

// Threads of a block at most: otherwise AMD's have the registers of four times as many.
#if defined(__AMDGCN__)
#define BOUNDS __launch_bounds__(256)
#else
#define BOUNDS
#endif

extern "C" __global__ void BOUNDS NAME(const T *q, const T *k, const T *v, U *out, U *k_cache, U *v_cache, const V *places, const V *slots,
                                const f32 *frequencies, RopeAppend r) {
    take_turn();
    // The angles of the block's rows, once for all heads.
    extern __shared__ f32 room[];
    f32 *cosines = room, *sines = room + blockDim.y * r.pairs;
    const i32 turned = r.pairs / EACH, units = (r.dim / EACH + 1) / 2, items = units * (r.heads + 2 * r.kv_heads);
    for (i32 row0 = blockIdx.x * blockDim.y; row0 < r.rows; row0 += gridDim.x * blockDim.y) {
        const i32 row = row0 + threadIdx.y, sequence = row / r.tokens, token = row - sequence * r.tokens;
        i32 kind, head, unit, first, second;
        // Of an odd number of packs the last unit has one.
        bool both;
        Pack<T, EACH> one, other;
        // Queries, then keys, then values.
        const auto load = [&](i32 item) {
            head = item / units, unit = item - head * units;
            kind = (head >= r.heads) + (head >= r.heads + r.kv_heads);
            head -= kind == 0 ? 0 : r.heads + (kind - 1) * r.kv_heads;
            first = TOGETHER || unit >= turned ? 2 * unit * EACH : unit * EACH;
            second = TOGETHER || unit >= turned ? first + EACH : first + r.pairs;
            both = second < r.dim;
            const Steps &steps = r.from[kind];
            const T *from = (kind == 0 ? q : kind == 1 ? k : v) + steps.at(sequence, token, head);
            one = get<T, EACH>(from + (i64)first * steps.element);
            if (both) other = get<T, EACH>(from + (i64)second * steps.element);
        };
        // The first loads are under way before the angles are known.
        const i32 item0 = blockIdx.y * blockDim.x + threadIdx.x;
        i64 slot = -1;
        if (row < r.rows) {
            slot = (i64)slots[(i64)sequence * r.slots[0] + (i64)token * r.slots[1]];
            if (item0 < items) load(item0);
        }
        __syncthreads();
        if (row < r.rows) {
            const f32 place = (f32)places[(i64)sequence * r.places[0] + (i64)token * r.places[1]];
            for (i32 pair = threadIdx.x; pair < r.pairs; pair += blockDim.x) {
                f32 sine, cosine;
                turn(place, frequencies[(i64)pair * r.frequencies], sine, cosine);
                cosines[threadIdx.y * r.pairs + pair] = cosine * (f32)r.factor;
                sines[threadIdx.y * r.pairs + pair] = sine * (f32)r.factor;
            }
        }
        __syncthreads();
        if (row >= r.rows) continue;
        const i64 block = slot / r.block_keys, within = slot - block * r.block_keys;
        const bool there = slot >= 0 && block < r.blocks;
        for (i32 item = item0; item < items; item += gridDim.y * blockDim.x) {
            if (item != item0) load(item);
            if (kind > 0 && !there) continue;
            const bool turns = kind < 2 && unit < turned;
            Pack<U, EACH> results[2];
#pragma unroll
            for (int i = 0; i < EACH; ++i) {
                // A pair that stands together lies in one of the two packs, if these are not single elements.
                const int p = threadIdx.y * r.pairs + unit * EACH + i;
                const bool apart = !TOGETHER || EACH == 1;
                const f32 a = apart ? widen(one.at[i]) : widen(2 * i < EACH ? one.at[2 * i % EACH] : other.at[2 * i % EACH]);
                const f32 b = apart ? widen(other.at[i]) : widen(2 * i < EACH ? one.at[(2 * i + 1) % EACH] : other.at[(2 * i + 1) % EACH]);
                const f32 cosine = turns ? cosines[p] : 1, sine = turns ? sines[p] : 0;
                const U x = Narrow<U>::from(turns ? a * cosine - b * sine : a), y = Narrow<U>::from(turns ? a * sine + b * cosine : b);
                if (apart) results[0].at[i] = x, results[1].at[i] = y;
                else results[2 * i / EACH].at[2 * i % EACH] = x, results[2 * i / EACH].at[(2 * i + 1) % EACH] = y;
            }
            const Steps &steps = r.to[kind];
            U *to = (kind == 0 ? out : kind == 1 ? k_cache : v_cache) + (kind == 0 ? steps.at(sequence, token, head) : steps.at(block, within, head));
            put<U, EACH>(to + (i64)first * steps.element, results[0]);
            if (both) put<U, EACH>(to + (i64)second * steps.element, results[1]);
        }
    }
}
