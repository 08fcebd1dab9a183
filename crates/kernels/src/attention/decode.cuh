// Split-KV decode attention: the key range of a block, its results, and the combine kernel.
//
// Rows are the queries of all heads that share a KV head, token by token; a block has some of them. Its keys are one of `splits` parts of
// the sequence. With several splits a block stores its result and the base-2 log-sum-exp in `partial` and `logs`, and `combine` merges
// them. T is the type of queries, keys and values, U that of the result.

#pragma once

// Defined by the launcher for calls with a tree mask.
#ifndef TREE
#define TREE 0
#endif
#define MAX_DRAFTS 64

#include "common/types.cuh"
#include "common/head_strides.cuh"
#include "common/pdl.cuh"

// The type of cached elements; with CODES, a quantized cache.
#if defined(CODES)
#include "attention/codes.cuh"
typedef Code Cached;
#define DECODE_SCALES , const f16 *k_scales, const f16 *v_scales, CodeScales scales
#else
typedef T Cached;
#define DECODE_SCALES
#endif

struct Decode {
    // For a paged cache, "sequence" is the cache block.
    HeadStrides q, k, v, out;
    // Strides.
    i32 table[2], tree[2], slopes[2], lengths, sinks;
    // A query sees keys from `left` before its position to `right` after it. The last: whether queries can be read as 16-byte vectors.
    i32 tokens, heads, group, keys, block_keys, blocks, splits, left, right, vector_queries;
    // Whether lengths are u32.
    i32 wide, padding;
    // Scores are multiplied by `scale`, soft-capped if `cap` is not 0, and then exponents of 2.
    f32 scale, cap;
};

struct Operands {
    const T *q;
    const Cached *k, *v;
    U *out;
    f32 *partial, *logs;
    const i32 *table, *lengths;
    const f32 *slopes, *sinks;
    const u64 *tree;
};
#define DECODE_PARAMETERS                                                                                                          \
    const T *q, const Cached *k, const Cached *v, U *out, f32 *partial, f32 *logs, const i32 *table, const i32 *lengths, \
        const f32 *slopes, const f32 *sinks, const u64 *tree
#define DECODE_OPERANDS Operands{q, k, v, out, partial, logs, table, lengths, slopes, sinks, tree}

// The first key of a sequence's drafts: its last queries.
__device__ inline i32 first_draft(const Decode &d, i32 len) { return len - (d.tokens < MAX_DRAFTS ? d.tokens : MAX_DRAFTS); }

// The keys a token's query sees; of drafts, a tree mask decides.
struct KeyRange {
    i32 position, first, end;
    __device__ KeyRange(const Decode &d, i32 len, i32 token) {
        position = len - d.tokens + token;
        first = position - d.left > 0 ? position - d.left : 0;
        end = position + d.right + 1 < len ? position + d.right + 1 : len;
    }
};

// Of a tree mask: whether a query sees draft `number`.
__device__ inline bool sees_draft(u64 drafts, i32 number) { return number < MAX_DRAFTS && (drafts >> number & 1); }

// A block's sequence, rows and keys: `tiles_each` tiles of `tile` keys from `begin` on, then as many every `step`, up to `end`.
// Interleaving puts what blocks read at one time close together, which memory serves a little faster.
struct KvSplit {
    i32 sequence, kv_head, split, row0, rows, len, begin, step, end;
    KvSplit() = default;
    __device__ KvSplit(const Decode &d, const i32 *lengths, int max_rows, int tile, int tiles_each) {
        const i32 all = d.tokens * d.group, groups = (all + max_rows - 1) / max_rows;
        split = blockIdx.x;
        kv_head = blockIdx.y / groups;
        row0 = (blockIdx.y - kv_head * groups) * max_rows;
        rows = all - row0 < max_rows ? all - row0 : max_rows;
        sequence = blockIdx.z;
        len = d.keys;
        if (lengths) {
            const i32 given = lengths[(i64)sequence * d.lengths];
            len = given < 0 ? (d.wide ? len : 0) : given < len ? given : len;
        }
        i32 from = KeyRange(d, len, row0 / d.group).first, last = KeyRange(d, len, (row0 + rows - 1) / d.group).end;
#if TREE
        const i32 draft = first_draft(d, len);
        from = from < draft ? from : draft > 0 ? draft : 0, last = len;
#endif
        begin = from / tile + split * tiles_each;
        step = d.splits * tiles_each;
        end = last > 0 ? (last + tile - 1) / tile : 0;
    }
    __device__ i32 token(const Decode &d, i32 row) const { return (row0 + row) / d.group; }
    __device__ i32 head(const Decode &d, i32 row) const { return kv_head * d.group + (row0 + row) % d.group; }
    __device__ f32 slope(const Decode &d, const f32 *slopes, i32 row) const {
        return slopes ? slopes[(i64)sequence * d.slopes[0] + (i64)head(d, row) * d.slopes[1]] * 1.44269504f : 0;
    }
    // The drafts that a row sees.
    __device__ u64 drafts(const Decode &d, const u64 *tree, i32 row) const {
        return tree[(i64)sequence * d.tree[0] + (i64)token(d, row) * d.tree[1]];
    }
    // Index of a row's partial result.
    __device__ i64 partial_index(const Decode &d, i32 row) const {
        return (((i64)sequence * d.tokens + token(d, row)) * d.heads + head(d, row)) * d.splits + split;
    }
};

// The cache block (or sequence) of keys from `key` on; negative if out of range. `within` is the first key's offset there.
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

// Rounded before anything is added: for large scores the rounding error would exceed the range of exp2.
__device__ inline f32 multiply_rn(f32 x, f32 y) { return __fmul_rn(x, y); }

__device__ inline f32 score(const Decode &d, f32 product, f32 slope, i32 distance) {
    f32 x = multiply_rn(product, d.scale);
    if (d.cap != 0) x = d.cap * tanhf(x);
    return x - slope * (f32)(distance < 0 ? -distance : distance);
}

// The score of a masked key; and 2^(x - largest), where both may be masked.
#define MASKED (-__int_as_float(0x7f800000))
__device__ inline f32 exp2_relative(f32 x, f32 largest) { return x == MASKED ? 0 : exp2_approx(x - largest); }

// A head's attention sink, to base 2. Of several splits, `combine` adds it.
__device__ inline f32 sink_of(const Decode &d, const f32 *sinks, i32 head) {
    return sinks ? sinks[(i64)head * d.sinks] * 1.44269504f : MASKED;
}

// Stores an element of a row's result, and its log-sum-exp.
__device__ inline void store_result(const Decode &d, const Operands &of, const KvSplit &part, i32 row, i32 column, f32 value, f32 log) {
    if (d.splits == 1) {
        of.out[d.out.at(part.sequence, part.token(d, row), part.head(d, row)) + (i64)column * d.out.element] = Narrow<U>::from(value);
        return;
    }
    const i64 at = part.partial_index(d, row);
    of.partial[at * DIM + column] = value;
    if (column == 0) of.logs[at] = log;
}

// Combines the splits of a row: a block per row. Threads in y, at most 16, take different splits; the 32 in x different columns. All loads
// are issued before the first is used.
extern "C" __global__ void __launch_bounds__(512) 
    KERNEL_NAME(NAME, _combine)(U *out, const f32 *partial, const f32 *logs, const f32 *sinks, Decode d) {
    extern __shared__ f32 sums[];
    pdl_sync();
    const int row = blockIdx.x, lane = threadIdx.x, splits = d.splits;
    const f32 *from = partial + (i64)row * splits * DIM;
    f32 values[4][(DIM + 31) / 32], weights[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) weights[half] = lane + 32 * half < splits ? logs[(i64)row * splits + lane + 32 * half] : MASKED;
#pragma unroll
    for (int p = 0; p < 4; ++p) {
        const int s = threadIdx.y + 16 * p;
#pragma unroll
        for (int c = 0; c < (DIM + 31) / 32; ++c) values[p][c] = s < splits && lane + 32 * c < DIM ? from[s * DIM + lane + 32 * c] : 0;
    }
    const f32 sink = sink_of(d, sinks, row % d.heads);
    f32 most = fmaxf(fmaxf(weights[0], weights[1]), sink);
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, apart, 32));
    weights[0] = exp2_relative(weights[0], most), weights[1] = exp2_relative(weights[1], most);
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
    total += exp2_relative(sink, most);
    const int position = row / d.heads;
    U *to = out + d.out.at(position / d.tokens, position % d.tokens, row % d.heads);
#pragma unroll 1
    for (int column = threadIdx.y * 32 + lane; column < DIM; column += blockDim.y * 32) {
        f32 value = 0;
#pragma unroll 4
        for (int y = 0; y < blockDim.y; ++y) value += sums[y * DIM + column];
        to[(i64)column * d.out.element] = Narrow<U>::from(total == 0 ? 0 : value / total);
    }
}
