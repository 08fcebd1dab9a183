// Shared by the flash attention kernels: tensor addressing, key ranges and the online softmax.
//
// A call has sequences of queries and of keys. The last query is aligned with the last key: query i sees the keys from i + shift - left to
// i + shift + right, with shift = number of keys - number of queries. Logarithms are to base 2.
//
// With TREE, the last queries of a sequence are drafts, at most MAX_DRAFTS; which of their keys a query sees is in a word of its own.

#pragma once

#include "common/head_strides.cuh"
#include "common/types.cuh"

// Defined by the launcher for calls with a tree mask.
#ifndef TREE
#define TREE 0
#endif
#define MAX_DRAFTS 64

// The type of cached elements; with CODES, a quantized cache.
#if defined(CODES)
#include "attention/codes.cuh"
typedef Code Cached;
#define CACHE_SCALES , const f16 *k_scales, const f16 *v_scales, const CodeScales scales
#else
typedef T Cached;
#define CACHE_SCALES
#endif

// Strides between sequences (or pages), rows and heads, in elements.
struct RowStrides { i64 sequence, row, head; };

struct Attention {
    RowStrides q, k, v, out, lse;
    // Maximum queries and keys of a sequence; for varlen sequences also the total rows.
    i32 q_len, kv_len, q_rows, kv_rows;
    // Query heads, query heads per KV head, and head_dim.
    i32 heads, group, dim;
    // Keys per page, columns of the block table, and number of pages; 0 without pages.
    i32 page, columns, pages;
    i32 left, right;
    // Query tiles per sequence, (sequence, head) pairs scheduled together, and pairs in total.
    i32 tiles, batch, pairs;
    f32 scale, cap;
    // Stride between sequences of the ALiBi slopes.
    i32 slopes;
    // Whether every row is aligned to 16 bytes.
    i32 aligned;
    // Bit mask of u32 tables (others are i32): q_starts, kv_starts, kv_lengths.
    i32 wide;
};

// Tables of a call; null if absent. Their values come from the caller and are clamped.
struct Tables {
    const f32 *slopes;
    const i32 *q_starts, *kv_starts, *kv_lengths, *pages;
    const u64 *tree;
};
#define TABLE_PARAMETERS                                                                                                           \
    const f32 *slopes, const i32 *q_starts, const i32 *kv_starts, const i32 *kv_lengths, const i32 *pages, const u64 *tree,        \
        const f32 *sinks
#define TABLES Tables{slopes, q_starts, kv_starts, kv_lengths, pages, tree}

// Strides of the results, and the attention sinks. AMD's compiler would load them early and keep them in scarce scalar registers, so the
// asm hides that they are kernel arguments. Ten pointers precede the struct; the last is that of the sinks.
struct Results {
    RowStrides out, lse;
    const f32 *sinks;
};
__device__ inline Results results(const Attention &a, const f32 *sinks) {
#if defined(__AMDGCN__)
    typedef const i64 __attribute__((address_space(4))) *Arguments;
    Arguments arguments = (Arguments)__builtin_amdgcn_kernarg_segment_ptr();
    asm volatile("" : "+s"(arguments));
    const Arguments strides = arguments + 10 + __builtin_offsetof(Attention, out) / 8;
    return Results{{strides[0], strides[1], strides[2]}, {strides[3], strides[4], strides[5]}, (const f32 *)arguments[9]};
#else
    return Results{a.out, a.lse, sinks};
#endif
}

__device__ inline i32 min_of(i32 a, i32 b) { return a < b ? a : b; }
__device__ inline i32 max_of(i32 a, i32 b) { return a > b ? a : b; }

// Clamps a table entry; as u32, large values must not appear negative.
__device__ inline i32 clamped(i32 number, bool wide, i32 most) { return number < 0 ? (wide ? most : 0) : min_of(number, most); }

// Start and length of a sequence's rows.
struct Span { i32 start, len; };
__device__ inline Span span(const i32 *starts, bool wide, i32 sequence, i32 rows, i32 most) {
    Span all = {0, most};
    if (!starts) return all;
    const i32 start = clamped(starts[sequence], wide, rows), end = max_of(clamped(starts[sequence + 1], wide, rows), start);
    Span some = {start, min_of(end - start, most)};
    return some;
}

struct KeyRange {
    i32 own, low, high;
#if TREE
    // The first draft, and the drafts that the query sees.
    i32 draft;
    u64 drafts;
    __device__ bool sees(i32 key) const {
        const i32 number = key - draft;
        return number < 0 ? key >= low && key <= high : number < MAX_DRAFTS && (drafts >> number & 1);
    }
#else
    __device__ bool sees(i32 key) const { return key >= low && key <= high; }
#endif
};

// The work of a block: QUERIES queries of one head from row `first`, against the key blocks [begin, end) of KEYS keys.
template <int QUERIES, int KEYS> struct Work {
    i32 sequence, head, first, q_len, kv_len, shift, begin, end, left, right;
    i64 q_start, kv_start;
#if TREE
    // The words of the sequence's queries, and its first draft among the keys.
    const u64 *tree;
    i32 draft;
#endif

    __device__ Work(const Attention &a, const Tables &t, u32 index) {
        // Pairs whose keys fit the L2 cache run together. Tiles with the most keys come first, so that no long one runs last.
        const u32 whole = (u32)a.batch * a.tiles, chunk = index / whole, rest = index - chunk * whole;
        const u32 here = (u32)min_of(a.batch, a.pairs - (i32)(chunk * a.batch)), tile = rest / here;
        const u32 pair = chunk * a.batch + (rest - tile * here);
        sequence = pair / a.heads;
        head = pair - sequence * a.heads;
        first = (a.tiles - 1 - (i32)tile) * QUERIES;
        const Span q = span(t.q_starts, a.wide & 1, sequence, a.q_rows, a.q_len);
        const Span kv = span(t.kv_starts, a.wide & 2, sequence, a.kv_rows, a.kv_len);
        q_start = q.start, q_len = q.len, kv_start = kv.start, kv_len = kv.len;
        if (t.kv_lengths) kv_len = clamped(t.kv_lengths[sequence], a.wide & 4, kv_len);
        shift = kv_len - q_len, left = a.left, right = a.right;
        i32 low = max_of(first + shift - left, 0), high = min_of(min_of(first + QUERIES, q_len) + shift + right, kv_len);
#if TREE
        tree = t.tree + (t.q_starts ? q_start : (i64)sequence * a.q_rows);
        draft = kv_len - min_of(q_len, MAX_DRAFTS);
        low = min_of(low, max_of(draft, 0)), high = kv_len;
#endif
        begin = low / KEYS;
        end = high > low ? (high + KEYS - 1) / KEYS : begin;
    }
    __device__ bool idle() const { return first >= q_len; }
    // Whether some query of the block does not see some key of a key block.
    __device__ bool masked(i32 block) const {
        const i32 key = block * KEYS;
#if TREE
        if (key + KEYS > draft) return true;
#endif
        return key + KEYS > kv_len || key + KEYS - 1 > first + shift + right || key < first + QUERIES - 1 + shift - left;
    }
    // A query's own position and its visible keys, relative to `key`.
    __device__ KeyRange range(i32 query, i32 key) const {
        const i32 own = query + shift - key;
        KeyRange range = {own, own - left, min_of(own + right, kv_len - 1 - key)};
#if TREE
        range.draft = draft - key, range.drafts = 0;
        // Drafts beyond the last do not exist.
        if (query < q_len && range.draft < KEYS) range.drafts = tree[query] & ~0ull >> (MAX_DRAFTS - (kv_len - draft));
#endif
        return range;
    }
};

// Rows of one head: contiguous sequences, or pages from a block table.
template <class T> struct Rows {
    const T *base;
    i64 step, page_stride;
    const i32 *table;
    i32 page, columns, pages;

    // Rows of a sequence without pages, from row `start`.
    __device__ Rows(const T *data, const RowStrides &strides, i32 sequence, i32 head, i64 start) {
        base = data + sequence * strides.sequence + head * strides.head + start * strides.row;
        step = strides.row, page_stride = 0, table = nullptr, page = 1, columns = 1, pages = 1;
    }
    // Rows of keys or values.
    template <class Work> __device__ Rows(const T *data, const RowStrides &strides, const Attention &a, const Tables &t, const Work &work) {
        base = data + (work.head / a.group) * strides.head;
        step = strides.row, page_stride = strides.sequence, page = a.page, columns = a.columns, pages = a.pages;
        table = t.pages ? t.pages + (i64)work.sequence * columns : nullptr;
        if (!table) base += work.sequence * strides.sequence + work.kv_start * strides.row;
    }
    // Rows of the scales of a quantized cache's keys or values.
    template <class Work>
    __device__ Rows(const T *data, const HeadStrides &strides, const Attention &a, const Tables &t, const Work &work)
        : Rows(data, RowStrides{strides.sequence, strides.token, strides.head}, a, t, work) {}
    // Null if the page is out of range.
    __device__ const T *at(i32 row) const {
        if (!table) return base + row * step;
        const i32 column = row / page, number = table[min_of(column, columns - 1)];
        return (u32)number < (u32)pages ? base + number * page_stride + (row - column * page) * step : nullptr;
    }
};

// Whether a key's page is out of range; such keys are masked.
__device__ inline bool missing(const Attention &a, const Tables &t, i32 sequence, i32 key) {
    return (u32)t.pages[(i64)sequence * a.columns + min_of(key / a.page, a.columns - 1)] >= (u32)a.pages;
}
// Whether a key block has missing keys.
template <int QUERIES, int KEYS>
__device__ inline bool any_missing(const Attention &a, const Tables &t, const Work<QUERIES, KEYS> &work, i32 block) {
    if (!t.pages) return false;
    const i32 end = min_of((block + 1) * KEYS, work.kv_len);
    bool some = false;
#pragma unroll 1
    for (i32 key = block * KEYS; key < end; key += a.page - key % a.page) some |= missing(a, t, work.sequence, key);
    return some;
}
// Bit mask of missing keys from `first` on.
template <int KEYS> struct MissingKeys {
    u32 words[(KEYS + 31) / 32];
    __device__ MissingKeys(const Attention &a, const Tables &t, i32 sequence, i32 first) {
#pragma unroll
        for (int w = 0; w < (KEYS + 31) / 32; ++w) {
            words[w] = 0;
            // Rare: need not be fast.
#pragma unroll 1
            for (int bit = 0; bit < 32; ++bit) words[w] |= (u32)missing(a, t, sequence, first + w * 32 + bit) << bit;
        }
    }
    __device__ bool at(int key) const { return words[key / 32] >> key % 32 & 1; }
};

__device__ inline f32 infinity() { return __uint_as_float(0x7f800000u); }

// Transformations of a score before the softmax: `soft_capped` or `scaled` if `transformed`, then `with_alibi`. All scores are multiplied
// by `factor`.
struct Scores {
    f32 factor, scale, cap, tanh_scale, slope;
    bool transformed;

    __device__ Scores(const Attention &a, const Tables &t, i32 sequence, i32 head) {
        const f32 log2e = 1.4426950408889634f;
        scale = a.scale * log2e, cap = a.cap * log2e, tanh_scale = a.cap > 0 ? 2 * scale / a.cap : 0;
        slope = t.slopes ? t.slopes[sequence * a.slopes + head] * log2e : 0;
        transformed = cap > 0 || slope != 0 || !(scale > 0);
        factor = transformed ? 1 : scale;
    }
    // cap · tanh(x / cap)
    __device__ f32 soft_capped(f32 x) const { return cap - __fdividef(2 * cap, 1 + exp2_approx(x * tanh_scale)); }
    __device__ f32 scaled(f32 x) const { return x * scale; }
    // Rounded before the subtraction: for large scores the rounding error would exceed the range of exp2.
    __device__ f32 times_factor(f32 x) const { return __fmul_rn(x, factor); }
    // Subtracts slope · distance.
    __device__ f32 with_alibi(f32 x, f32 distance) const { return fmaf(-slope, fabsf(distance), x); }
};

// Natural log-sum-exp of a row whose sum is relative to 2^most.
__device__ inline f32 log_sum(f32 most, f32 sum) { return sum == 0 ? -infinity() : (most + log2f(sum)) * 0.6931471805599453f; }

// A row's maximum and sum with those of its head's sink, and the factor of its results.
struct RowTotal { f32 most, sum, share; };
__device__ inline RowTotal row_total(f32 most, f32 sum, const f32 *sinks, i32 head) {
    f32 own = 1;
    if (sinks) {
        const f32 sink = sinks[head] * 1.4426950408889634f, top = fmaxf(most, sink);
        if (top != -infinity()) own = exp2_approx(most - top), sum = sum * own + exp2_approx(sink - top);
        most = top;
    }
    RowTotal total = {most, sum, sum == 0 ? 0 : own / sum};
    return total;
}

// Below this magnitude, scaling and subtracting the maximum may be fused into one FMA: the maximum's rounding error is common to the row
// and cancels.
#define FUSED_LIMIT 1048576.0f

// Lazy rescaling of the online softmax: sums are rescaled only if the maximum grew by more than this (a factor of 2^8, far from overflow).
#define RESCALE_THRESHOLD 8.0f

// Stores N adjacent elements, times a factor.
template <int N, class T> __device__ inline void store_run(T *to, const f32 *from, f32 factor, bool aligned) {
    struct alignas(sizeof(T) * N) Run { T at[N]; } run;
#pragma unroll
    for (int i = 0; i < N; ++i) run.at[i] = Narrow<T>::from(from[i] * factor);
    if (aligned) {
        *(Run *)to = run;
    } else {
#pragma unroll
        for (int i = 0; i < N; ++i) to[i] = run.at[i];
    }
}
