// Reductions. T is the element type, U the result's; OP_<name> selects the operation.
//
// `rows` reduces contiguous elements, `columns` adjacent columns, `any` everything else. Large reductions are split into parts, whose
// results `finish` merges in a fixed order.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME sum_f32_f32
#define OP_sum
#define T f32
#define U f32
#define UNROLL 4
#endif

#include "common/row_reduce.cuh"

typedef Traits<T>::Math Math;

template <class E> __device__ inline typename Traits<E>::Math lowest() {
    if constexpr (Traits<E>::INTEGER) return widen(Traits<E>::lowest());
    else return -__uint_as_float(0x7f800000u);
}
template <class E> __device__ inline typename Traits<E>::Math highest() {
    if constexpr (Traits<E>::INTEGER) return widen(Traits<E>::highest());
    else return __uint_as_float(0x7f800000u);
}

// Integers wrap in a type of the result's size.
template <bool INTEGER, int BYTES> struct Running { typedef Math Type; };
template <int BYTES> struct Running<true, BYTES> { typedef u32 Type; };
template <> struct Running<true, 8> { typedef u64 Type; };

template <class R, class V> __device__ inline R stored(V value) {
    if constexpr (Traits<R>::INTEGER) return (R)value;
    else return convert<R>(value);
}

// Accumulators. begin() gets the lowest index to come, add() elements of the indices `first`, `first + stride`, …, with growing indices.
// result() is final; `divisor` is the number of elements, minus the correction of a variance.
#if defined(OP_sum) || defined(OP_mean) || defined(OP_prod) || defined(OP_min) || defined(OP_max)
#if defined(OP_prod)
typedef Product Way;
#define IDENTITY 1
#elif defined(OP_min)
typedef MinNan Way;
#define IDENTITY highest<T>()
#elif defined(OP_max)
typedef MaxNan Way;
#define IDENTITY lowest<T>()
#else
typedef Sum Way;
#define IDENTITY 0
#endif
struct Acc {
#if defined(OP_min) || defined(OP_max)
    typedef Math Type;
#else
    typedef Running<Traits<T>::INTEGER, sizeof(U)>::Type Type;
#endif
    Type value;
    __device__ inline void clear() { value = IDENTITY; }
    __device__ inline void begin(u64) {}
    template <int N> __device__ inline void add(const Math (&x)[N], u64, u64) {
        Type y[N];
#pragma unroll
        for (int k = 0; k < N; ++k) y[k] = (Type)x[k];
        value = Way::of(value, tree_reduce<Way, N>(y));
    }
    __device__ inline void merge(const Acc &other) { value = Way::of(value, other.value); }
    __device__ inline U result(f64 divisor) const {
#if defined(OP_mean)
        return convert<U>((Math)(value / (Math)divisor));
#else
        return stored<U>(value);
#endif
    }
};
#elif defined(OP_any) || defined(OP_all)
// Not 0 if the element is not: its bits, without a float's sign.
__device__ inline u32 size_of(u32 x) { return x; }
__device__ inline u32 size_of(i32 x) { return (u32)x; }
__device__ inline u32 size_of(i64 x) { return (u32)x | (u32)(x >> 32); }
__device__ inline u32 size_of(f32 x) { return __float_as_uint(x) << 1; }
__device__ inline u32 size_of(f64 x) { return size_of((i64)((u64)__double_as_longlong(x) << 1)); }
struct Acc {
    u32 value;
#if defined(OP_any)
    __device__ inline void clear() { value = 0; }
    __device__ inline void merge(const Acc &other) { value |= other.value; }
#else
    __device__ inline void clear() { value = 1; }
    __device__ inline void merge(const Acc &other) { value = other.value < value ? other.value : value; }
#endif
    __device__ inline void begin(u64) {}
    template <int N> __device__ inline void add(const Math (&x)[N], u64, u64) {
#pragma unroll
        for (int k = 0; k < N; ++k) {
            Acc one = {size_of(x[k])};
            merge(one);
        }
    }
    __device__ inline U result(f64) const { return (U)(value != 0); }
};
#elif defined(OP_argmin) || defined(OP_argmax)
#if defined(OP_argmin)
typedef MinNan Way;
#define BEFORE(Y, X) ((Y) < (X))
#else
typedef MaxNan Way;
#define BEFORE(Y, X) ((Y) > (X))
#endif
// Whether `y` precedes `x`, which has the lower index: NaN first, and the first of equals.
__device__ inline bool better(Math y, Math x) { return (BEFORE(y, x) || y != y) && x == x; }
struct Acc {
    Math value;
    u64 index;
#if defined(OP_argmin)
    __device__ inline void clear() { value = highest<T>(); index = ~0ull; }
#else
    __device__ inline void clear() { value = lowest<T>(); index = ~0ull; }
#endif
    __device__ inline void begin(u64 first) { index = index == ~0ull ? first : index; }
    template <int N> __device__ inline void add(const Math (&x)[N], u64 first, u64 stride) {
        Math best = x[0];
        u32 which = 0;
#pragma unroll
        for (int k = 1; k < N; ++k) {
            const bool take = better(x[k], best);
            best = take ? x[k] : best;
            which = take ? k : which;
        }
        const bool take = better(best, value);
        value = take ? best : value;
        index = take ? first + which * stride : index;
    }
    // The same, faster, as long as all are numbers; NaN stays in the value, but its index is lost.
    template <int N> __device__ inline void add_numbers(const Math (&x)[N], u64 first, u64 stride) {
        Math best = x[0];
        u32 which = 0;
#pragma unroll
        for (int k = 1; k < N; ++k) {
            which = BEFORE(x[k], best) ? k : which;
            best = Way::of(best, x[k]);
        }
        index = BEFORE(best, value) ? first + which * stride : index;
        value = Way::of(value, best);
    }
    __device__ inline bool lost() const { return value != value; }
    __device__ inline void merge(const Acc &other) {
        const bool take = other.index < index ? !better(value, other.value) : better(other.value, value);
        value = take ? other.value : value;
        index = take ? other.index : index;
    }
    __device__ inline U result(f64) const { return (U)index; }
};
#elif defined(OP_var)
struct Acc {
    Welford<Math> moments;
    __device__ inline void clear() { moments.clear(); }
    __device__ inline void begin(u64) {}
    template <int N> __device__ inline void add(const Math (&x)[N], u64, u64) { moments.template add<N>(x); }
    template <int N> __device__ inline void add(const Math (&x)[N], Math share) { moments.template add<N>(x, share); }
    __device__ inline void merge(const Acc &other) { moments.merge(other.moments); }
    __device__ inline U result(f64 divisor) const { return convert<U>((Math)(moments.squares / (Math)(divisor > 0 ? divisor : 0))); }
};
#endif

// Parameters. Of `n` reduced elements a thread group takes `part`, fewer than 2³¹; there are `parts` of them. `outer` such stretches form
// one result.
struct Job {
    u64 n, part, parts, outer;
    // Strides between the elements of a column in the input, and between columns in the result.
    u64 stride, result_stride;
    f64 divisor;
    RowDims row_dims;
};

#define WIDTH (16 / (int)sizeof(T))
#if defined(OP_argmin) || defined(OP_argmax)
// Keeps the vector that has the extremum; which element it was is determined at the end.
struct Packs {
    Math value;
    u64 first;
    Bundle<T, WIDTH> best;
    __device__ inline void clear() {
        Acc none;
        none.clear();
        value = none.value;
        first = ~0ull;
    }
    __device__ inline void add(const Bundle<T, WIDTH> &pack, u64 at) {
        Math x[WIDTH];
        pack.unpack(x);
        const Math most = tree_reduce<Way, WIDTH>(x);
        const bool take = better(most, value);
        value = take ? most : value;
        first = take ? at : first;
        best.raw.x = take ? pack.raw.x : best.raw.x;
        best.raw.y = take ? pack.raw.y : best.raw.y;
        best.raw.z = take ? pack.raw.z : best.raw.z;
        best.raw.w = take ? pack.raw.w : best.raw.w;
    }
    // The thread's first vector was at `begin`.
    __device__ inline void into(Acc &acc, u64 begin) const {
        Acc some = {value, first == ~0ull ? begin : first};
        if (first != ~0ull) {
            u32 which = 0;
            Math x[WIDTH];
            best.unpack(x);
#pragma unroll
            for (int k = WIDTH - 1; k >= 0; --k) which = x[k] == value || x[k] != x[k] ? k : which;
            some.index += which;
        }
        acc.merge(some);
    }
};
#else
struct Packs {
    Acc acc;
    __device__ inline void clear() { acc.clear(); }
    __device__ inline void add(const Bundle<T, WIDTH> &pack, u64) {
        Math x[WIDTH];
        pack.unpack(x);
        acc.template add<WIDTH>(x, 0, 1);
    }
    __device__ inline void into(Acc &other, u64) const { other.merge(acc); }
};
#endif
#define SHORT_WIDTH (WIDTH > 8 ? 8 : WIDTH)
#define MAX_WARPS 32

__device__ inline void add_one(Acc &acc, T element, u64 index) {
    Math x[1] = {widen(element)};
    acc.template add<1>(x, index, 0);
}

// A thread group's share of `n` contiguous elements; the first has index `first`.
__device__ inline void add_row(Acc &acc, const T *p, u32 n, u64 first) {
    const u32 lane = threadIdx.x, team = blockDim.x, unaligned = before_aligned(p), head = unaligned < n ? unaligned : n;
    if (lane < head) acc.begin(first + lane);
    for (u32 i = lane; i < head; i += team) add_one(acc, p[i], first + i);
    p += head, n -= head, first += head;
    const u32 count = n / WIDTH;
    u32 i = lane;
    if (i < count) {
        Packs packs;
        packs.clear();
        // All loads are issued before the first is used.
        Bundle<T, WIDTH> pack[UNROLL];
#pragma unroll 1
        for (; i + (UNROLL - 1) * team < count; i += UNROLL * team) {
#pragma unroll
            for (int k = 0; k < UNROLL; ++k) pack[k].load(p + (i + k * team) * WIDTH);
#pragma unroll
            for (int k = 0; k < UNROLL; ++k) packs.add(pack[k], first + (i + k * team) * WIDTH);
        }
#pragma unroll
        for (int k = 0; k < UNROLL - 1; ++k) if (i + k * team < count) pack[k].load(p + (i + k * team) * WIDTH);
#pragma unroll
        for (int k = 0; k < UNROLL - 1; ++k) if (i + k * team < count) packs.add(pack[k], first + (i + k * team) * WIDTH);
        packs.into(acc, first + lane * WIDTH);
    }
    const u32 tail = count * WIDTH + lane;
    if (tail < n) acc.begin(first + tail);
    for (u32 j = tail; j < n; j += team) add_one(acc, p[j], first + j);
}

// Iterates over results and, within them, their stretches.
extern "C" __global__ void KERNEL_NAME(NAME, _rows)(const T *x, U *out, Acc *parts, Job job) {
    __shared__ Acc smem[MAX_WARPS];
    const u64 jobs = job.row_dims.n * job.parts;
    for (u64 base = (u64)blockIdx.x * blockDim.y; base < jobs; base += (u64)gridDim.x * blockDim.y) {
        const u64 which = base + threadIdx.y;
        u64 at[2] = {0, 0};
        Acc acc;
        acc.clear();
        if (which < jobs) {
            const u64 row = job.parts == 1 ? which : quotient(which, job.parts), start = (which - row * job.parts) * job.part;
            place(job.row_dims, row, at);
            const u64 stretch = job.outer == 1 ? 0 : row - quotient(row, job.outer) * job.outer;
            add_row(acc, x + at[0] + start, (u32)(job.part < job.n - start ? job.part : job.n - start), stretch * job.n + start);
        }
        acc = reduce_row(acc, smem);
        if (threadIdx.x == 0 && which < jobs) {
            if (parts) parts[which] = acc;
            else out[at[1]] = acc.result(job.divisor);
        }
        if (blockDim.x > warpSize) __syncthreads();
    }
}

// Adjacent columns have the same number of elements, so what depends only on it is computed once. Indices are first searched as if there
// were no NaN, and again if there was one.
#define SHARE(ACC, N)
#define LOST(ACC) false
#if defined(OP_var)
#undef SHARE
#define SHARE(ACC, N) const Math share = ACC.moments.share(N)
#define ADD_COLUMN(ACC, COLUMN, FIRST, STEP) ACC.template add<UNROLL>(COLUMN, share)
#elif defined(OP_argmin) || defined(OP_argmax)
#undef LOST
#define LOST(ACC) any_lost(ACC)
#define ADD_COLUMN(ACC, COLUMN, FIRST, STEP) ACC.template add_numbers<UNROLL>(COLUMN, FIRST, STEP)
template <int WIDE> __device__ inline bool any_lost(const Acc (&acc)[WIDE]) {
    bool lost = false;
#pragma unroll
    for (int w = 0; w < WIDE; ++w) lost |= acc[w].lost();
    return lost;
}
#else
#define ADD_COLUMN(ACC, COLUMN, FIRST, STEP) ACC.template add<UNROLL>(COLUMN, FIRST, STEP)
#endif

// Threads with the same threadIdx.x have the same WIDE columns. Iterates over vectors of columns, and around them over stretches.
template <int WIDE> __device__ inline void columns(const T *x, U *out, Acc *parts, const Job &job) {
    __shared__ Acc smem[128 * WIDE];
    const u64 packs = job.row_dims.n * job.outer, which = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    const u64 start = blockIdx.y * job.part;
    const u32 n = (u32)(job.part < job.n - start ? job.part : job.n - start), y = threadIdx.y, team = blockDim.y;
    u64 at[2] = {0, 0}, stretch = 0;
    Acc acc[WIDE];
#pragma unroll
    for (int w = 0; w < WIDE; ++w) acc[w].clear();
    if (which < packs) {
        place(job.row_dims, which, at);
        stretch = job.outer == 1 ? 0 : quotient(which, job.row_dims.n);
        const T *p = x + at[0] + start * job.stride;
        const u64 first = stretch * job.n + start;
        bool careful = false;
        do {
#pragma unroll
            for (int w = 0; w < WIDE; ++w) {
                acc[w].clear();
                if (y < n) acc[w].begin(first + y);
            }
            u32 i = y;
#pragma unroll 1
            for (; !careful && i + (UNROLL - 1) * team < n; i += UNROLL * team) {
                Bundle<T, WIDE> pack[UNROLL];
#pragma unroll
                for (int k = 0; k < UNROLL; ++k) pack[k].load(p + (u64)(i + k * team) * job.stride);
                SHARE(acc[0], UNROLL);
                Math x[UNROLL][WIDE];
#pragma unroll
                for (int k = 0; k < UNROLL; ++k) pack[k].unpack(x[k]);
#pragma unroll
                for (int w = 0; w < WIDE; ++w) {
                    Math column[UNROLL];
#pragma unroll
                    for (int k = 0; k < UNROLL; ++k) column[k] = x[k][w];
                    ADD_COLUMN(acc[w], column, first + i, team);
                }
            }
#pragma unroll 1
            for (; i < n; i += team) {
                Bundle<T, WIDE> one;
                one.load(p + (u64)i * job.stride);
                Math x[WIDE];
                one.unpack(x);
#pragma unroll
                for (int w = 0; w < WIDE; ++w) {
                    Math value[1] = {x[w]};
                    acc[w].template add<1>(value, first + i, 0);
                }
            }
            careful = !careful && LOST(acc);
        } while (careful);
    }
    for (u32 half = team / 2; half > 0; half /= 2) {
        Acc *mine = smem + (y % half * blockDim.x + threadIdx.x) * WIDE;
        if (y >= half && y < 2 * half) {
#pragma unroll
            for (int w = 0; w < WIDE; ++w) mine[w] = acc[w];
        }
        __syncthreads();
        if (y < half) {
#pragma unroll
            for (int w = 0; w < WIDE; ++w) acc[w].merge(mine[w]);
        }
        __syncthreads();
    }
    if (y == 0 && which < packs) {
        const u64 part = (stretch * job.parts + blockIdx.y) * job.row_dims.n + (which - stretch * job.row_dims.n);
#pragma unroll
        for (int w = 0; w < WIDE; ++w) {
            if (parts) parts[part * WIDE + w] = acc[w];
            else out[at[1] + w * job.result_stride] = acc[w].result(job.divisor);
        }
    }
}
extern "C" __global__ void KERNEL_NAME(NAME, _columns)(const T *x, U *out, Acc *parts, Job job) { columns<SHORT_WIDTH>(x, out, parts, job); }
extern "C" __global__ void KERNEL_NAME(NAME, _column)(const T *x, U *out, Acc *parts, Job job) { columns<1>(x, out, parts, job); }

// Iterates over results; `within` over the reduced elements.
extern "C" __global__ void KERNEL_NAME(NAME, _any)(const T *x, U *out, Acc *parts, Job job, RowDims within) {
    __shared__ Acc smem[MAX_WARPS];
    const u64 jobs = job.row_dims.n * job.parts;
    for (u64 base = (u64)blockIdx.x * blockDim.y; base < jobs; base += (u64)gridDim.x * blockDim.y) {
        const u64 which = base + threadIdx.y;
        u64 at[2] = {0, 0};
        Acc acc;
        acc.clear();
        if (which < jobs) {
            const u64 result = quotient(which, job.parts), start = (which - result * job.parts) * job.part;
            const u64 end = start + job.part < job.n ? start + job.part : job.n;
            place(job.row_dims, result, at);
            if (start + threadIdx.x < end) acc.begin(start + threadIdx.x);
            for (u64 i = start + threadIdx.x; i < end; i += blockDim.x) {
                u64 there[1];
                place(within, i, there);
                add_one(acc, x[at[0] + there[0]], i);
            }
        }
        acc = reduce_row(acc, smem);
        if (threadIdx.x == 0 && which < jobs) {
            if (parts) parts[which] = acc;
            else out[at[1]] = acc.result(job.divisor);
        }
        if (blockDim.x > warpSize) __syncthreads();
    }
}

// Merges the partial results of each result: `n` of them, `stride` apart; those of the next result are `result_stride` apart. Iterates over
// results.
extern "C" __global__ void KERNEL_NAME(NAME, _finish)(U *out, const Acc *parts, Job job) {
    __shared__ Acc smem[MAX_WARPS];
    for (u64 base = (u64)blockIdx.x * blockDim.y; base < job.row_dims.n; base += (u64)gridDim.x * blockDim.y) {
        const u64 result = base + threadIdx.y;
        Acc acc;
        acc.clear();
        if (result < job.row_dims.n)
            for (u64 i = threadIdx.x; i < job.n; i += blockDim.x) acc.merge(parts[result * job.result_stride + i * job.stride]);
        acc = reduce_row(acc, smem);
        if (threadIdx.x == 0 && result < job.row_dims.n) {
            u64 at[2];
            place(job.row_dims, result, at);
            out[at[1]] = acc.result(job.divisor);
        }
        if (blockDim.x > warpSize) __syncthreads();
    }
}
