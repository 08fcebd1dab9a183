// Rows brought to a common size: softmax, its logarithm, and the norms. T is the type of the elements, V that of weight and bias.
//
// `registers` keeps a row in its team's registers, ITEMS packs in each thread; `edges` does so where packs do not fit the row, or the
// operands lie apart from one another. Without ITEMS, `long` reads a row twice, and `strided` one of any layout.
//
// With RESIDUAL the input is first added to `residual`, which keeps the sum, rounded; the norm is of that.

typedef Traits<T>::Math Math;
#define WIDTH (16 / (int)sizeof(T))
#define MOST_WARPS 32
#define LOADS 4

struct Lines {
    // Elements of a row.
    u64 n;
    // Of a norm of groups: neighbours of one weight, and groups.
    u64 spatial, groups;
    f64 epsilon;
    // Over rows: the strides of the input, the result and the residual.
    Walk walk;
};

#if defined(OP_softmax) || defined(OP_log_softmax)
#define EXPONENTIALS
#define NEUTRAL (-__uint_as_float(0x7f800000u))
#else
#define NEUTRAL 0
#endif

// e to the power of x - most. Where the result is rounded to 16 bits, the hardware's own exponential is exact enough.
template <int BYTES> __device__ inline Math exponential(Math x, Math most) {
    if constexpr (BYTES > 2) {
        return exp(x - most);
    } else {
        const f32 log2e = 1.44269504088896341f, power = fma(x, log2e, -most * log2e);
#if defined(__AMDGCN__)
        return __builtin_amdgcn_exp2f(power);
#else
        f32 result;
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(power));
        return result;
#endif
    }
}

struct Most {
    Math value;
    __device__ inline void merge(const Most &other) { value = fmax(value, other.value); }
};
struct Total {
    Math value;
    __device__ inline void merge(const Total &other) { value += other.value; }
};
struct Greatest {
    static __device__ inline Math of(Math a, Math b) { return fmax(a, b); }
};

// What a row's results need to know of all of its elements; and the results.
struct Found {
    Math a, b;
};
__device__ inline Math result(Math x, const Found &found, Math weight, Math bias) {
#if defined(OP_softmax)
    return exponential<sizeof(T)>(x, found.a) * found.b;
#elif defined(OP_log_softmax)
    return x - found.a - found.b;
#elif defined(OP_rms_norm)
    return x * found.a * weight;
#else
    return fma((x - found.a) * found.b, weight, bias);
#endif
}

// Both in one go over the elements, whatever their number.
#if defined(EXPONENTIALS)
struct Stats {
    Math most, total;
    __device__ inline void clear() { most = NEUTRAL; total = 0; }
    // As long as nothing but -∞ was seen there is nothing to subtract.
    static __device__ inline Math base(Math most) { return most == NEUTRAL ? (Math)0 : most; }
    template <int N> __device__ inline void add(const Math (&x)[N]) {
        const Math before = most;
        most = fmax(most, in_pairs<Greatest, N>(x));
        Math e[N];
#pragma unroll
        for (int k = 0; k < N; ++k) e[k] = exponential<sizeof(T)>(x[k], base(most));
        total = total * exponential<sizeof(T)>(base(before), base(most)) + in_pairs<Sum, N>(e);
    }
    __device__ inline void merge(const Stats &other) {
        const Math both = fmax(most, other.most), here = base(both);
        total = total * exponential<sizeof(T)>(base(most), here) + other.total * exponential<sizeof(T)>(base(other.most), here);
        most = both;
    }
    __device__ inline Found found(const Lines &) const { return finish(most, total); }
    static __device__ inline Found finish(Math most, Math total) {
#if defined(OP_softmax)
        Found found = {most, 1 / total};
#else
        Found found = {most, log(total)};
#endif
        return found;
    }
};
#elif defined(OP_rms_norm)
struct Stats {
    Math squares;
    __device__ inline void clear() { squares = 0; }
    template <int N> __device__ inline void add(const Math (&x)[N]) {
        Math y[N];
#pragma unroll
        for (int k = 0; k < N; ++k) y[k] = x[k] * x[k];
        squares += in_pairs<Sum, N>(y);
    }
    __device__ inline void merge(const Stats &other) { squares += other.squares; }
    __device__ inline Found found(const Lines &lines) const {
        Found found = {rsqrt(squares / (Math)lines.n + (Math)lines.epsilon), 0};
        return found;
    }
};
#else
struct Stats {
    Moments<Math> moments;
    __device__ inline void clear() { moments.clear(); }
    template <int N> __device__ inline void add(const Math (&x)[N]) { moments.add(x); }
    __device__ inline void merge(const Stats &other) { moments.merge(other.moments); }
    __device__ inline Found found(const Lines &lines) const {
        Found found = {moments.mean, rsqrt(moments.squares / (Math)lines.n + (Math)lines.epsilon)};
        return found;
    }
};
#endif

typedef Pack<T, WIDTH> Items;

// The elements from `j` on of a row of `n`; those outside of it are neutral. Without EDGES packs are inside or outside as a whole.
template <bool EDGES> __device__ inline bool whole(const T *row, i64 j, i64 n) {
    return EDGES ? j >= 0 && j + WIDTH <= n && (u64)(row + j) % 16 == 0 : j < n;
}
template <bool EDGES> __device__ inline Items load(const T *row, i64 j, i64 n) {
    if (whole<EDGES>(row, j, n)) return get<T, WIDTH>(row + j);
    Items items;
#pragma unroll
    for (int w = 0; w < WIDTH; ++w) items.at[w] = EDGES && j + w >= 0 && j + w < n ? row[j + w] : Narrow<T>::from(NEUTRAL);
    return items;
}
template <bool EDGES> __device__ inline void store(T *row, i64 j, i64 n, const Items &items) {
    if (whole<EDGES>(row, j, n)) return put<T, WIDTH>(row + j, items);
    if (!EDGES) return;
#pragma unroll
    for (int w = 0; w < WIDTH; ++w) if (j + w >= 0 && j + w < n) row[j + w] = items.at[w];
}

// With the residual, which is updated.
template <bool EDGES> __device__ inline Items load_sum(const T *x, T *residual, i64 j, i64 n) {
    Items items = load<EDGES>(x, j, n);
    if constexpr (RESIDUAL) {
        const Items others = load<EDGES>(residual, j, n);
#pragma unroll
        for (int w = 0; w < WIDTH; ++w) items.at[w] = Narrow<T>::from(widen(items.at[w]) + widen(others.at[w]));
        store<EDGES>(residual, j, n, items);
    }
    return items;
}

// Weights from element `j` of a row on; `channel` is the row's first. Those missing are `none`.
template <bool EDGES> __device__ inline void weights(Math (&w)[WIDTH], const V *from, Math none, i64 j, u64 channel, const Lines &lines) {
#if defined(EXPONENTIALS)
    return;
#endif
    if (!from) {
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) w[k] = none;
        return;
    }
#if defined(OP_group_norm)
    if constexpr (!EDGES) {
        const Math one = widen(from[channel + quotient(j, lines.spatial)]);
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) w[k] = one;
    } else {
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) w[k] = j + k >= 0 && j + k < lines.n ? widen(from[channel + quotient(j + k, lines.spatial)]) : 0;
    }
#else
    if constexpr (!EDGES) {
        const int some = 16 / sizeof(V) < WIDTH ? 16 / sizeof(V) : WIDTH;
#pragma unroll
        for (int k = 0; k < WIDTH; k += some) {
            const Pack<V, some> pack = get<V, some>(from + j + k);
#pragma unroll
            for (int i = 0; i < some; ++i) w[k + i] = widen(pack.at[i]);
        }
    } else {
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) w[k] = j + k >= 0 && j + k < lines.n ? widen(from[j + k]) : 0;
    }
#endif
}

// The results of the pack at `j`.
template <bool EDGES>
__device__ inline void finish(T *out, const Items &items, const Found &found, const V *weight, const V *bias, i64 j, u64 channel, const Lines &lines) {
    Math w[WIDTH], b[WIDTH];
    weights<EDGES>(w, weight, 1, j, channel, lines);
#if !defined(OP_rms_norm)
    weights<EDGES>(b, bias, 0, j, channel, lines);
#endif
    Items results;
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) results.at[k] = Narrow<T>::from(result(widen(items.at[k]), found, w[k], b[k]));
    store<EDGES>(out, j, lines.n, results);
}

__device__ inline u64 first_channel(u64 row, const Lines &lines) {
#if defined(OP_group_norm)
    return (row - quotient(row, lines.groups) * lines.groups) * quotient(lines.n, lines.spatial);
#else
    return 0;
#endif
}

#if ITEMS
template <bool EDGES>
__device__ inline void in_registers(const T *x, T *residual, const V *weight, const V *bias, T *out, const Lines &lines) {
    __shared__ Total room[MOST_WARPS], second_room[MOST_WARPS];
    const u64 row = (u64)blockIdx.x * blockDim.y + threadIdx.y;
    u64 at[3];
    place(lines.walk, row < lines.walk.n ? row : 0, at);
    // A team too many at the end has rows of nothing.
    const i32 n = row < lines.walk.n ? (i32)lines.n : 0;
    x += at[0], out += at[1];
    if (RESIDUAL) residual += at[2];
    const i32 phase = EDGES ? (i32)((u64)x % 16 / sizeof(T)) : 0, j = (i32)threadIdx.x * WIDTH - phase, step = (i32)blockDim.x * WIDTH;
    Items items[ITEMS];
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) items[k] = load_sum<EDGES>(x, residual, j + k * step, n);

    Found found;
#if defined(EXPONENTIALS)
    Most most = {NEUTRAL};
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        Math v[WIDTH];
#pragma unroll
        for (int w = 0; w < WIDTH; ++w) v[w] = widen(items[k].at[w]);
        most.value = fmax(most.value, in_pairs<Greatest, WIDTH>(v));
    }
#if defined(ONLINE)
    Stats stats = {most.value, 0};
    const Math here = Stats::base(most.value);
#else
    most = over_team(most, (Most *)room);
    const Math here = most.value;
#endif
    Total total = {0};
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        Math v[WIDTH];
#pragma unroll
        for (int w = 0; w < WIDTH; ++w) v[w] = exponential<sizeof(T)>(widen(items[k].at[w]), here);
        total.value += in_pairs<Sum, WIDTH>(v);
    }
#if defined(ONLINE)
    __shared__ Stats stats_room[MOST_WARPS];
    stats.total = total.value;
    found = over_team(stats, stats_room).found(lines);
#else
    found = Stats::finish(most.value, over_team(total, second_room).value);
#endif
#else
    Total total = {0};
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        Math v[WIDTH];
#pragma unroll
        for (int w = 0; w < WIDTH; ++w) {
            v[w] = widen(items[k].at[w]);
#if defined(OP_rms_norm)
            v[w] *= v[w];
#endif
        }
        total.value += in_pairs<Sum, WIDTH>(v);
    }
    const Math mean = over_team(total, room).value / (Math)lines.n;
#if defined(OP_rms_norm)
    found.a = rsqrt(mean + (Math)lines.epsilon);
#else
    total.value = 0;
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        Math v[WIDTH];
        const i32 here = j + k * step;
#pragma unroll
        for (int w = 0; w < WIDTH; ++w) {
            const Math apart = widen(items[k].at[w]) - mean;
            v[w] = (EDGES ? (u32)(here + w) < (u32)n : here < n) ? apart * apart : 0;
        }
        total.value += in_pairs<Sum, WIDTH>(v);
    }
    found.a = mean;
    found.b = rsqrt(over_team(total, second_room).value / (Math)lines.n + (Math)lines.epsilon);
#endif
#endif
    const u64 channel = first_channel(row, lines);
#pragma unroll
    for (int k = 0; k < ITEMS; ++k)
        if (j + k * step < n) finish<EDGES>(out, items[k], found, weight, bias, j + k * step, channel, lines);
}
#define PARAMETERS const T *x, T *residual, const V *weight, const V *bias, T *out, Lines lines
extern "C" __global__ void SYMBOL(NAME, _registers)(PARAMETERS) { in_registers<false>(x, residual, weight, bias, out, lines); }
extern "C" __global__ void SYMBOL(NAME, _edges)(PARAMETERS) { in_registers<true>(x, residual, weight, bias, out, lines); }
#else

// A block for a row.
extern "C" __global__ void SYMBOL(NAME, _long)(const T *x, T *residual, const V *weight, const V *bias, T *out, Lines lines) {
    __shared__ Stats room[MOST_WARPS];
    for (u64 row = blockIdx.x; row < lines.walk.n; row += gridDim.x) {
        u64 at[3];
        place(lines.walk, row, at);
        const T *from = x + at[0];
        T *sum = RESIDUAL ? residual + at[2] : 0, *to = out + at[1];
        const i64 n = lines.n, phase = (u64)from % 16 / sizeof(T), j = (i64)threadIdx.x * WIDTH - phase, step = (i64)blockDim.x * WIDTH;
        Stats stats;
        stats.clear();
#pragma unroll 1
        for (i64 i = j; i < n; i += LOADS * step) {
            Items items[LOADS];
#pragma unroll
            for (int k = 0; k < LOADS; ++k) items[k] = load_sum<true>(from, sum, i + k * step, n);
#pragma unroll
            for (int k = 0; k < LOADS; ++k) {
                const i64 here = i + k * step;
                Math v[WIDTH];
#pragma unroll
                for (int w = 0; w < WIDTH; ++w) v[w] = widen(items[k].at[w]);
                if (here >= 0 && here + WIDTH <= n) {
                    stats.template add<WIDTH>(v);
                } else {
#pragma unroll
                    for (int w = 0; w < WIDTH; ++w) {
                        Math one[1] = {v[w]};
                        if (here + w >= 0 && here + w < n) stats.template add<1>(one);
                    }
                }
            }
        }
        const Found found = over_team(stats, room).found(lines);
        const u64 channel = first_channel(row, lines);
        const T *again = RESIDUAL ? sum : from;
#pragma unroll 1
        for (i64 i = j; i < n; i += LOADS * step) {
            Items items[LOADS];
#pragma unroll
            for (int k = 0; k < LOADS; ++k) items[k] = load<true>(again, i + k * step, n);
#pragma unroll
            for (int k = 0; k < LOADS; ++k) finish<true>(to, items[k], found, weight, bias, i + k * step, channel, lines);
        }
        __syncthreads();
    }
}

// Threads of one threadIdx.x share a row; `within` walks it.
extern "C" __global__ void SYMBOL(NAME, _strided)(const T *x, T *residual, const V *weight, const V *bias, T *out, Lines lines, Walk within) {
    __shared__ Stats room[256];
    const u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x, n = row < lines.walk.n ? lines.n : 0;
    u64 at[3];
    place(lines.walk, n ? row : 0, at);
    Stats stats;
    stats.clear();
    for (u64 i = threadIdx.y; i < n; i += blockDim.y) {
        u64 there[3];
        place(within, i, there);
        T element = x[at[0] + there[0]];
        if (RESIDUAL) {
            T *sum = residual + at[2] + there[2];
            element = *sum = Narrow<T>::from(widen(element) + widen(*sum));
        }
        Math one[1] = {widen(element)};
        stats.template add<1>(one);
    }
    room[threadIdx.y * blockDim.x + threadIdx.x] = stats;
    for (u32 half = blockDim.y / 2; half > 0; half /= 2) {
        __syncthreads();
        Stats *mine = room + threadIdx.y * blockDim.x + threadIdx.x;
        if (threadIdx.y < half) mine->merge(mine[half * blockDim.x]);
    }
    __syncthreads();
    const Found found = room[threadIdx.x].found(lines);
    const u64 channel = first_channel(row, lines);
    for (u64 i = threadIdx.y; i < n; i += blockDim.y) {
        u64 there[3];
        place(within, i, there);
        const T element = RESIDUAL ? residual[at[2] + there[2]] : x[at[0] + there[0]];
        Math w = 1, b = 0;
#if !defined(EXPONENTIALS)
#if defined(OP_group_norm)
        const u64 which = channel + quotient(i, lines.spatial);
#else
        const u64 which = i;
#endif
        if (weight) w = widen(weight[which]);
        if (bias) b = widen(bias[which]);
#endif
        out[at[1] + there[1]] = Narrow<T>::from(result(widen(element), found, w, b));
    }
}
#endif
