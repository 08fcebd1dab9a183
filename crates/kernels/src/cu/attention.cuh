// What the attention kernels share: where the rows of a call lie, which keys a query sees, and the steps of the running softmax.
//
// A call has sequences of queries and of keys. The last query stands beside the last key: query i sees the keys from i + shift - left to
// i + shift + right, where shift is how many more keys than queries there are. Logarithms are to base 2.

// Steps between sequences (or pages), rows and heads, in elements.
struct Steps { i64 sequence, row, head; };

struct Attention {
    Steps q, k, v, out, lse;
    // Queries and keys of a sequence at most; of packed sequences also how many rows there are in all.
    i32 q_len, kv_len, q_rows, kv_rows;
    // Query heads, how many of them share keys and values, and the size of a head.
    i32 heads, group, dim;
    // Keys of a page, pages in a sequence's row of the table, and pages that there are; without pages 0.
    i32 page, columns, pages;
    i32 left, right;
    // Blocks of queries of a sequence, and how many pairs of sequence and head are worked on together.
    i32 tiles, together, pairs;
    f32 scale, cap;
    // From a sequence's slopes to the next one's.
    i32 slopes;
    // Whether every row begins at a multiple of 16 bytes.
    i32 aligned;
    // Which tables are of u32, a bit for each: starts of queries, starts of keys, numbers of keys.
    i32 wide;
};

// The tables of a call; those that it has not are null. They are the caller's: what they say is held to what there is.
struct Tables {
    const f32 *slopes;
    const i32 *q_starts, *kv_starts, *kv_lengths, *pages;
};

// The steps of a kernel's results. AMD's compiler would load them first and carry them along in scalar registers, of which there are not
// enough: it may not know that these are the same. Eight pointers stand before the kernel's struct.
struct Results { Steps out, lse; };
__device__ inline Results results(const Attention &a) {
#if defined(__AMDGCN__)
    typedef const i64 __attribute__((address_space(4))) *Arguments;
    Arguments steps = (Arguments)__builtin_amdgcn_kernarg_segment_ptr();
    asm volatile("" : "+s"(steps));
    steps += 8 + __builtin_offsetof(Attention, out) / 8;
    return Results{{steps[0], steps[1], steps[2]}, {steps[3], steps[4], steps[5]}};
#else
    return Results{a.out, a.lse};
#endif
}

__device__ inline i32 least(i32 a, i32 b) { return a < b ? a : b; }
__device__ inline i32 largest(i32 a, i32 b) { return a > b ? a : b; }

// What a table says, held to what there is: as a u32 nothing is below 0.
__device__ inline i32 held(i32 number, bool wide, i32 most) { return number < 0 ? (wide ? most : 0) : least(number, most); }

// From where a sequence's rows start, and how many there are.
struct Span { i32 start, len; };
__device__ inline Span span(const i32 *starts, bool wide, i32 sequence, i32 rows, i32 most) {
    Span all = {0, most};
    if (!starts) return all;
    const i32 start = held(starts[sequence], wide, rows), end = largest(held(starts[sequence + 1], wide, rows), start);
    Span some = {start, least(end - start, most)};
    return some;
}

struct Sight {
    i32 own, low, high;
    __device__ bool sees(i32 key) const { return key >= low && key <= high; }
};

// What a block has to do: QUERIES queries of one head from row `first` on, against the blocks of KEYS keys from `begin` to before `end`.
template <int QUERIES, int KEYS> struct Work {
    i32 sequence, head, first, q_len, kv_len, shift, begin, end, left, right;
    i64 q_start, kv_start;

    __device__ Work(const Attention &a, const Tables &t, u32 index) {
        // Together: their keys fit the cache. The blocks with the most keys come first, so that no long one is left for the end.
        const u32 whole = (u32)a.together * a.tiles, chunk = index / whole, rest = index - chunk * whole;
        const u32 here = (u32)least(a.together, a.pairs - (i32)(chunk * a.together)), tile = rest / here;
        const u32 pair = chunk * a.together + (rest - tile * here);
        sequence = pair / a.heads;
        head = pair - sequence * a.heads;
        first = (a.tiles - 1 - (i32)tile) * QUERIES;
        const Span q = span(t.q_starts, a.wide & 1, sequence, a.q_rows, a.q_len);
        const Span kv = span(t.kv_starts, a.wide & 2, sequence, a.kv_rows, a.kv_len);
        q_start = q.start, q_len = q.len, kv_start = kv.start, kv_len = kv.len;
        if (t.kv_lengths) kv_len = held(t.kv_lengths[sequence], a.wide & 4, kv_len);
        shift = kv_len - q_len, left = a.left, right = a.right;
        const i32 low = largest(first + shift - left, 0), high = least(least(first + QUERIES, q_len) + shift + right, kv_len);
        begin = low / KEYS;
        end = high > low ? (high + KEYS - 1) / KEYS : begin;
    }
    __device__ bool idle() const { return first >= q_len; }
    // Whether some query of the block does not see some of these keys.
    __device__ bool masked(i32 block) const {
        const i32 key = block * KEYS;
        return key + KEYS > kv_len || key + KEYS - 1 > first + shift + right || key < first + QUERIES - 1 + shift - left;
    }
    // Of keys from `key` on, counted from there: a query's own place, and the first and last that it sees.
    __device__ Sight sight(i32 query, i32 key) const {
        const i32 own = query + shift - key;
        Sight sight = {own, own - left, least(own + right, kv_len - 1 - key)};
        return sight;
    }
};

// Rows of one head: one behind the other, or in pages that a table names.
template <class T> struct Rows {
    const T *base;
    i64 step, page_step;
    const i32 *table;
    i32 page, columns, pages;

    // Of a sequence without pages, from its row `start` on.
    __device__ Rows(const T *data, const Steps &steps, i32 sequence, i32 head, i64 start) {
        base = data + sequence * steps.sequence + head * steps.head + start * steps.row;
        step = steps.row, page_step = 0, table = nullptr, page = 1, columns = 1, pages = 1;
    }
    // Of keys or values.
    template <class Work> __device__ Rows(const T *data, const Steps &steps, const Attention &a, const Tables &t, const Work &work) {
        base = data + (work.head / a.group) * steps.head;
        step = steps.row, page_step = steps.sequence, page = a.page, columns = a.columns, pages = a.pages;
        table = t.pages ? t.pages + (i64)work.sequence * columns : nullptr;
        if (!table) base += work.sequence * steps.sequence + work.kv_start * steps.row;
    }
    // Null where the table names no page.
    __device__ const T *at(i32 row) const {
        if (!table) return base + row * step;
        const i32 column = row / page, number = table[least(column, columns - 1)];
        return (u32)number < (u32)pages ? base + number * page_step + (row - column * page) * step : nullptr;
    }
};

// Keys of pages that the table does not name are not there.
__device__ inline bool missing(const Attention &a, const Tables &t, i32 sequence, i32 key) {
    return (u32)t.pages[(i64)sequence * a.columns + least(key / a.page, a.columns - 1)] >= (u32)a.pages;
}
// Whether there are such among a block's.
template <int QUERIES, int KEYS>
__device__ inline bool some_missing(const Attention &a, const Tables &t, const Work<QUERIES, KEYS> &work, i32 block) {
    if (!t.pages) return false;
    const i32 end = least((block + 1) * KEYS, work.kv_len);
    bool some = false;
#pragma unroll 1
    for (i32 key = block * KEYS; key < end; key += a.page - key % a.page) some |= missing(a, t, work.sequence, key);
    return some;
}
// Which of the keys from `first` on, a bit each.
template <int KEYS> struct Holes {
    u32 words[(KEYS + 31) / 32];
    __device__ Holes(const Attention &a, const Tables &t, i32 sequence, i32 first) {
#pragma unroll
        for (int w = 0; w < (KEYS + 31) / 32; ++w) {
            words[w] = 0;
            // Rare: it need not be fast.
#pragma unroll 1
            for (int bit = 0; bit < 32; ++bit) words[w] |= (u32)missing(a, t, sequence, first + w * 32 + bit) << bit;
        }
    }
    __device__ bool at(int key) const { return words[key / 32] >> key % 32 & 1; }
};

__device__ inline f32 infinity() { return __uint_as_float(0x7f800000u); }

// What becomes of a product of query and key before the softmax: where scores are `bent`, `capped` or `scaled`, and then `sloped`. All are
// multiplied with `factor`.
struct Scores {
    f32 factor, scale, cap, turn, slope;
    bool bent;

    __device__ Scores(const Attention &a, const Tables &t, i32 sequence, i32 head) {
        const f32 log2e = 1.4426950408889634f;
        scale = a.scale * log2e, cap = a.cap * log2e, turn = a.cap > 0 ? 2 * scale / a.cap : 0;
        slope = t.slopes ? t.slopes[sequence * a.slopes + head] * log2e : 0;
        bent = cap > 0 || slope != 0 || !(scale > 0);
        factor = bent ? 1 : scale;
    }
    // cap · tanh(x / cap)
    __device__ f32 capped(f32 x) const { return cap - __fdividef(2 * cap, 1 + bare_exp2(x * turn)); }
    __device__ f32 scaled(f32 x) const { return x * scale; }
    // Rounded before anything is taken from it: of large scores, what rounding takes is more than powers hold.
    __device__ f32 times_factor(f32 x) const { return __fmul_rn(x, factor); }
    // Less by a slope times the distance.
    __device__ f32 sloped(f32 x, f32 distance) const { return fmaf(-slope, fabsf(distance), x); }
};

// The natural logarithm of a row's sum, of which 2 to the power of `most` was taken out.
__device__ inline f32 log_sum(f32 most, f32 sum) { return sum == 0 ? -infinity() : (most + log2f(sum)) * 0.6931471805599453f; }

// Up to this far from 0, a score may be multiplied with its factor and the largest taken from it in one step: what rounding took off the
// largest is the same for all, and cancels out.
#define FAR 1048576.0f

// A row's largest score so far may fall behind by this much before sums are scaled anew: 2 to its power is far from an overflow.
#define SLACK 8.0f

// Neighbours of a row, times a factor.
template <int N, class T> __device__ inline void put_run(T *to, const f32 *from, f32 factor, bool aligned) {
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
