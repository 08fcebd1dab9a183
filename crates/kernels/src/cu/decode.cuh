// Attention of few queries to many keys: which keys a block sees, and where its results go.
//
// The queries of all heads that share keys, token by token, are rows; a block has some of them. Its keys are one of `splits` parts of the
// sequence's. With more than one part a block leaves its result in `partial`, with the logarithm (to base 2) of its sum, and `combine`
// puts them together. T is the type of queries, keys and values, U that of the result.

struct Decode {
    // Of paged keys and values a block is a sequence.
    Steps q, k, v, out;
    i32 table[2], lengths, slopes;
    // The last says whether the queries can be read 16 bytes at a time.
    i32 tokens, heads, group, keys, block_keys, blocks, splits, causal, window, whole_queries;
    // Whether the lengths are u32.
    i32 wide, padding;
    // Scores are multiplied with `scale`, and if there is a cap it is put on them. Then they count powers of 2.
    f32 scale, cap;
};

struct Operands {
    const T *q, *k, *v;
    U *out;
    f32 *partial, *logs;
    const i32 *table, *lengths;
    const f32 *slopes;
};
#define OPERANDS                                                                                                                   \
    const T *q, const T *k, const T *v, U *out, f32 *partial, f32 *logs, const i32 *table, const i32 *lengths, const f32 *slopes
#define OPERANDS_GIVEN Operands{q, k, v, out, partial, logs, table, lengths, slopes}

// The keys that the query of a token sees.
struct Sees {
    i32 place, first, end;
    __device__ Sees(const Decode &d, i32 len, i32 token) {
        place = len - d.tokens + token;
        first = d.window != 0 && place - d.window + 1 > 0 ? place - d.window + 1 : 0;
        end = d.causal && place + 1 < len ? place + 1 : len;
        if (d.window != 0 && place + d.window < end) end = place + d.window;
    }
};

// A block's sequence, rows and keys: `together` tiles of `tile` keys from `begin` on, and as many each `step` further, up to `end`. What
// blocks read at the same time lies together: memory gives a little more than where each has a run of its own.
struct Part {
    i32 sequence, kv_head, split, row0, rows, len, begin, step, end;
    Part() = default;
    __device__ Part(const Decode &d, const i32 *lengths, int most_rows, int tile, int together) {
        const i32 all = d.tokens * d.group, groups = (all + most_rows - 1) / most_rows;
        split = blockIdx.x;
        kv_head = blockIdx.y / groups;
        row0 = (blockIdx.y - kv_head * groups) * most_rows;
        rows = all - row0 < most_rows ? all - row0 : most_rows;
        sequence = blockIdx.z;
        len = d.keys;
        if (lengths) {
            const i32 given = lengths[(i64)sequence * d.lengths];
            len = given < 0 ? (d.wide ? len : 0) : given < len ? given : len;
        }
        const i32 from = Sees(d, len, row0 / d.group).first / tile, last = Sees(d, len, (row0 + rows - 1) / d.group).end;
        begin = from + split * together;
        step = d.splits * together;
        end = last > 0 ? (last + tile - 1) / tile : 0;
    }
    __device__ i32 token(const Decode &d, i32 row) const { return (row0 + row) / d.group; }
    __device__ i32 head(const Decode &d, i32 row) const { return kv_head * d.group + (row0 + row) % d.group; }
    __device__ f32 slope(const Decode &d, const f32 *slopes, i32 row) const {
        return slopes ? slopes[(i64)head(d, row) * d.slopes] * 1.44269504f : 0;
    }
    // Where the result of a row is left.
    __device__ i64 left_at(const Decode &d, i32 row) const {
        return (((i64)sequence * d.tokens + token(d, row)) * d.heads + head(d, row)) * d.splits + split;
    }
};

// Where keys from `key` on are: the block of the pool, or the sequence; negative if nowhere. `within` is the first of them there.
__device__ inline i32 block_of(const Decode &d, const i32 *table, i32 sequence, i32 key, i32 &within) {
#if PAGED
    const i32 index = key / d.block_keys, block = table[(i64)sequence * d.table[0] + (i64)index * d.table[1]];
    within = key - index * d.block_keys;
    return block < d.blocks ? block : -1;
#else
    within = key;
    return sequence;
#endif
}

// Rounded before anything is added: of large scores, what rounding takes is more than powers hold.
__device__ inline f32 times(f32 x, f32 y) { return __fmul_rn(x, y); }

__device__ inline f32 score(const Decode &d, f32 product, f32 slope, i32 distance) {
    f32 x = times(product, d.scale);
    if (d.cap != 0) x = d.cap * tanhf(x);
    return x - slope * (f32)(distance < 0 ? -distance : distance);
}

// A score of what is not seen; and 2 to the power of a score, less than the largest of them, which may be that.
#define UNSEEN (-__int_as_float(0x7f800000))
__device__ inline f32 power(f32 x, f32 largest) { return x == UNSEEN ? 0 : bare_exp2(x - largest); }

// An element of a row's result, and the logarithm of its sum.
__device__ inline void leave(const Decode &d, const Operands &of, const Part &part, i32 row, i32 column, f32 value, f32 log) {
    if (d.splits == 1) {
        of.out[d.out.at(part.sequence, part.token(d, row), part.head(d, row)) + (i64)column * d.out.element] = Narrow<U>::from(value);
        return;
    }
    const i64 at = part.left_at(d, row);
    of.partial[at * DIM + column] = value;
    if (column == 0) of.logs[at] = log;
}

// The parts of a row put together: a block for each. Threads in y, at most 16, have different parts; those in x, 32 of them, have different
// columns. All that is loaded is under way at once.
extern "C" __global__ void __launch_bounds__(512) SYMBOL(NAME, _combine)(U *out, const f32 *partial, const f32 *logs, Decode d) {
    extern __shared__ f32 sums[];
    take_turn();
    const int row = blockIdx.x, lane = threadIdx.x, splits = d.splits;
    const f32 *from = partial + (i64)row * splits * DIM;
    f32 values[4][(DIM + 31) / 32], weights[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) weights[half] = lane + 32 * half < splits ? logs[(i64)row * splits + lane + 32 * half] : UNSEEN;
#pragma unroll
    for (int p = 0; p < 4; ++p) {
        const int s = threadIdx.y + 16 * p;
#pragma unroll
        for (int c = 0; c < (DIM + 31) / 32; ++c) values[p][c] = s < splits && lane + 32 * c < DIM ? from[s * DIM + lane + 32 * c] : 0;
    }
    f32 most = fmaxf(weights[0], weights[1]);
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, apart, 32));
    weights[0] = power(weights[0], most), weights[1] = power(weights[1], most);
    f32 total = weights[0] + weights[1], sum[(DIM + 31) / 32] = {};
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) total += __shfl_xor_sync(0xffffffffu, total, apart, 32);
#pragma unroll
    for (int p = 0; p < 4; ++p) {
        const f32 weight = __shfl_sync(0xffffffffu, weights[p / 2], threadIdx.y + p % 2 * 16, 32);
#pragma unroll
        for (int c = 0; c < (DIM + 31) / 32; ++c) sum[c] += weight * values[p][c];
    }
#pragma unroll
    for (int c = 0; c < (DIM + 31) / 32; ++c)
        if (lane + 32 * c < DIM) sums[threadIdx.y * DIM + lane + 32 * c] = sum[c];
    __syncthreads();
    const int place = row / d.heads;
    U *to = out + d.out.at(place / d.tokens, place % d.tokens, row % d.heads);
#pragma unroll 1
    for (int column = threadIdx.y * 32 + lane; column < DIM; column += blockDim.y * 32) {
        f32 value = 0;
#pragma unroll 4
        for (int y = 0; y < blockDim.y; ++y) value += sums[y * DIM + column];
        to[(i64)column * d.out.element] = Narrow<U>::from(total == 0 ? 0 : value / total);
    }
}
