// Rows brought to a common size: softmax, its logarithm, and the norms. T is the type of the elements, U that of weight and bias, V that
// of the results.
//
// `registers` keeps a row in its team's registers, ITEMS packs in each thread; `edges` does so where packs do not fit the row, or the
// operands lie apart from one another, if the row is short; with PARTS, `clusters` has rows in shared memory. Without ITEMS, `staged` keeps a row in shared memory too,
// `long` reads it twice, and so does `strided`, in any layout.
//
// With RESIDUAL the input is first added to `residual`, which keeps the sum, rounded; the norm is of that.

#if !defined(U)
#define U T
#endif
#if !defined(V)
#define V T
#endif
typedef Traits<T>::Math Math;
#define WIDTH (16 / (int)sizeof(T))
#define MOST_WARPS 32
#define LOADS 4
// Of a block's rows where packs fit: their weights wait in shared memory.
#define MOST_CHANNELS 1024
// Registers for so many blocks at once, where packs fit.
#if defined(__AMDGCN__)
#define BOUNDS __launch_bounds__(THREADS)
#define LOOSE __launch_bounds__(THREADS)
#else
#define BOUNDS __launch_bounds__(THREADS, BLOCKS)
#define LOOSE
#endif
#if !RESIDUAL && !defined(__AMDGCN__) && __CUDA_ARCH__ >= 800
#define ASYNC_COPIES 1
#endif

// They lie apart from what is written: those of the next elements may be loaded before these are stored.
#define WEIGHTS const U *__restrict__ weight, const U *__restrict__ bias

struct Lines {
    // Elements of a row.
    u64 n;
    // Of a norm of groups: neighbours of one weight, and groups; and what a division by the first is in 32 bits: a product's upper half, a
    // sum, a shift.
    u64 spatial, groups;
    u32 magic, shift;
    // Between weights, and between biases.
    u64 weight_step, bias_step;
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
        const f32 log2e = 1.44269504088896341f, power = ((f32)x - (f32)most) * log2e;
        return bare_exp2(power);
    }
}

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
        total = total * exponential<sizeof(T)>(before, base(most)) + in_pairs<Sum, N>(e);
    }
    __device__ inline void merge(const Stats &other) {
        const Math both = fmax(most, other.most), here = base(both);
        total = total * exponential<sizeof(T)>(most, here) + other.total * exponential<sizeof(T)>(other.most, here);
        most = both;
    }
    __device__ inline Found found(const Lines &) const {
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
    template <int N> __device__ inline void add(const Math (&x)[N]) { moments.template add<N>(x); }
    __device__ inline void merge(const Stats &other) { moments.merge(other.moments); }
    __device__ inline Found found(const Lines &lines) const {
        Found found = {moments.mean, rsqrt(moments.squares / (Math)lines.n + (Math)lines.epsilon)};
        return found;
    }
};
#endif

typedef Bundle<T, WIDTH> Items;

// The elements from `j` on of a row of `n`; those outside of it are neutral. Without EDGES packs are inside or outside as a whole.
template <bool EDGES, class E> __device__ inline bool whole(const E *row, i64 j, i64 n) {
    return EDGES ? j >= 0 && j + WIDTH <= n && (u64)(row + j) % (WIDTH * sizeof(E)) == 0 : j < n;
}
template <bool EDGES> __device__ inline Items load(const T *row, i64 j, i64 n) {
    Items items;
    if (whole<EDGES>(row, j, n)) {
        items.load(row + j);
    } else {
        Math x[WIDTH];
#pragma unroll
        for (int w = 0; w < WIDTH; ++w) x[w] = EDGES && j + w >= 0 && j + w < n ? widen(row[j + w]) : (Math)NEUTRAL;
        items.pack(x);
    }
    return items;
}
template <bool EDGES, class E> __device__ inline void store(E *row, i64 j, i64 n, const Math (&x)[WIDTH]) {
    if (whole<EDGES>(row, j, n)) {
        Bundle<E, WIDTH> items;
        items.pack(x);
        items.store(row + j);
    } else if constexpr (EDGES) {
#pragma unroll
        for (int w = 0; w < WIDTH; ++w) if (j + w >= 0 && j + w < n) row[j + w] = Narrow<E>::from(x[w]);
    }
}

// With the residual, which is updated.
template <bool EDGES> __device__ inline Items load_sum(const T *x, T *residual, i64 j, i64 n) {
    Items items = load<EDGES>(x, j, n);
    if constexpr (RESIDUAL) {
        Math a[WIDTH], b[WIDTH];
        items.unpack(a);
        load<EDGES>(residual, j, n).unpack(b);
#pragma unroll
        for (int w = 0; w < WIDTH; ++w) a[w] += b[w];
        store<EDGES>(residual, j, n, a);
        items.pack(a);
    }
    return items;
}

// Weights from element `j` of a row on; `channel` is the row's first. Those missing are `none`. PACKED they lie in packs.
template <bool EDGES, bool PACKED>
__device__ inline void weights(Math (&w)[WIDTH], const U *from, u64 step, Math none, i64 j, u64 channel, const Lines &lines) {
    if (!from) {
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) w[k] = none;
        return;
    }
#if !defined(OP_group_norm)
    if constexpr (PACKED) {
        const int some = 16 / sizeof(U) < WIDTH ? 16 / sizeof(U) : WIDTH;
#pragma unroll
        for (int k = 0; k < WIDTH; k += some) {
            Bundle<U, some> pack;
            pack.load(from + j + k);
            typename Traits<U>::Math x[some];
            pack.unpack(x);
#pragma unroll
            for (int i = 0; i < some; ++i) w[k + i] = x[i];
        }
    } else
#endif
    {
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) {
            const bool there = !EDGES || (j + k >= 0 && j + k < lines.n);
#if defined(OP_group_norm)
            w[k] = there ? widen(from[(channel + quotient(j + k, lines.spatial)) * step]) : (Math)0;
#else
            w[k] = there ? widen(from[(j + k) * step]) : (Math)0;
#endif
        }
    }
}

// The results of the pack at `j`.
template <bool EDGES, bool PACKED>
__device__ inline void finish(V *out, const Items &items, const Found &found, const U *weight, const U *bias, i64 j, i64 n, u64 channel,
                              const Lines &lines) {
    Math w[WIDTH], b[WIDTH];
#if !defined(EXPONENTIALS)
    weights<EDGES, PACKED>(w, weight, lines.weight_step, 1, j, channel, lines);
#if !defined(OP_rms_norm)
    weights<EDGES, PACKED>(b, bias, lines.bias_step, 0, j, channel, lines);
#endif
#endif
    Math x[WIDTH];
    items.unpack(x);
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) x[k] = result(x[k], found, w[k], b[k]);
    store<EDGES>(out, j, n, x);
}

__device__ inline u64 first_channel(u64 row, const Lines &lines) {
#if defined(OP_group_norm)
    return (row - quotient(row, lines.groups) * lines.groups) * quotient(lines.n, lines.spatial);
#else
    return 0;
#endif
}

// What a row's results need to know, from packs that are looked at more than once: row.each() gives them all to a function. Outside of
// the row they are neutral.
template <bool EDGES, class Row> __device__ inline Stats look(Row &row, i32 n) {
    Stats stats;
    stats.clear();
#if defined(EXPONENTIALS)
    row.each([&](const Items &items, i32) {
        Math v[WIDTH];
        items.unpack(v);
        stats.most = fmax(stats.most, in_pairs<Greatest, WIDTH>(v));
    });
    row.each([&](const Items &items, i32) {
        Math v[WIDTH];
        items.unpack(v);
#pragma unroll
        for (int w = 0; w < WIDTH; ++w) v[w] = exponential<sizeof(T)>(v[w], Stats::base(stats.most));
        stats.total += in_pairs<Sum, WIDTH>(v);
    });
#elif defined(OP_rms_norm)
    row.each([&](const Items &items, i32) {
        Math v[WIDTH];
        items.unpack(v);
        stats.template add<WIDTH>(v);
    });
#else
    Math count = 0, sum = 0, squares = 0;
    row.each([&](const Items &items, i32 j) {
        Math v[WIDTH];
        items.unpack(v);
#pragma unroll
        for (int w = 0; EDGES && w < WIDTH; ++w) count += (u32)(j + w) < (u32)n;
        if (!EDGES) count += j < n ? WIDTH : 0;
        sum += in_pairs<Sum, WIDTH>(v);
    });
    const Math mean = count > 0 ? ratio(sum, count) : 0;
    row.each([&](const Items &items, i32 j) {
        Math v[WIDTH], part = 0;
        items.unpack(v);
#pragma unroll
        for (int w = 0; w < WIDTH; ++w) {
            const Math apart = v[w] - mean;
            if (!EDGES || (u32)(j + w) < (u32)n) part = fma(apart, apart, part);
        }
        squares += EDGES || j < n ? part : 0;
    });
    stats.moments.n = count;
    stats.moments.mean = mean;
    stats.moments.squares = squares;
#endif
    return stats;
}

// A row, its operands brought to it.
template <bool EDGES, class Row>
__device__ inline void line(Row &row, const U *weight, const U *bias, V *out, u64 which, i32 n, const Lines &lines) {
    __shared__ Stats room[MOST_WARPS];
#if defined(OP_group_norm)
    // The channels' weights are brought while the row is.
    __shared__ Math near[2][MOST_CHANNELS];
    const u32 channels = (u32)quotient(lines.n, lines.spatial), mine = threadIdx.y * channels;
    for (u32 c = threadIdx.x; c < channels; c += blockDim.x) {
        const u64 channel = first_channel(which, lines) + c;
        near[0][mine + c] = weight ? widen(weight[channel * lines.weight_step]) : (Math)1;
        near[1][mine + c] = bias ? widen(bias[channel * lines.bias_step]) : (Math)0;
    }
    __syncthreads();
#endif
    const Found found = over_team(look<EDGES>(row, n), room).found(lines);
    row.each([&](const Items &items, i32 j) {
        if (j >= n) return;
#if defined(OP_group_norm)
        const u32 c = mine + ((__umulhi((u32)j, lines.magic) + (u32)j) >> lines.shift);
        const Math w = near[0][c], b = near[1][c];
        Math x[WIDTH];
        items.unpack(x);
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) x[k] = result(x[k], found, w, b);
        store<EDGES>(out, j, n, x);
#else
        finish<EDGES, !EDGES>(out, items, found, weight, bias, j, n, 0, lines);
#endif
    });
}

#if ITEMS
struct Registers {
    Items packs[ITEMS];
    i32 j, step;
    template <class F> __device__ inline void each(F f) {
#pragma unroll
        for (int k = 0; k < ITEMS; ++k) {
#if !defined(__AMDGCN__)
            // Each time as if it were new: what elements become on the way would else be kept, in twice the registers.
            if (sizeof(T) < 4) asm volatile("" : "+r"(packs[k].raw.x), "+r"(packs[k].raw.y), "+r"(packs[k].raw.z), "+r"(packs[k].raw.w));
#endif
            f(packs[k], j + k * step);
        }
    }
};

template <bool EDGES>
__device__ inline void in_registers(const T *x, T *residual, const U *weight, const U *bias, V *out, const Lines &lines) {
    const u64 which = (u64)blockIdx.x * blockDim.y + threadIdx.y;
    u64 at[3];
    place(lines.walk, which < lines.walk.n ? which : 0, at);
    // A team too many at the end has a row of nothing.
    const i32 n = which < lines.walk.n ? (i32)lines.n : 0;
    x += at[0];
    if (RESIDUAL) residual += at[2];
    Registers row;
    row.j = (i32)threadIdx.x * WIDTH - (EDGES ? (i32)((u64)x % 16 / sizeof(T)) : 0);
    row.step = (i32)blockDim.x * WIDTH;
    let_next_start();
#if ITEMS <= 2 && !defined(EXPONENTIALS) && !defined(OP_group_norm) && !defined(__AMDGCN__)
    // Of few rows, what they are multiplied with comes from far: it may come to the cache meanwhile.
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const i32 j = row.j + k * row.step;
        if (weight && j >= 0 && j < n) asm volatile("prefetch.global.L2 [%0];" ::"l"(weight + j * lines.weight_step));
    }
#endif
    wait_for_last();
#if RESIDUAL && ITEMS <= 2
    // All loads are under way before the first sum is stored: of few rows, none is there to wait with others.
    Items others[ITEMS];
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        row.packs[k] = load<EDGES>(x, row.j + k * row.step, n);
        others[k] = load<EDGES>(residual, row.j + k * row.step, n);
    }
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        Math a[WIDTH], b[WIDTH];
        row.packs[k].unpack(a);
        others[k].unpack(b);
#pragma unroll
        for (int w = 0; w < WIDTH; ++w) a[w] += b[w];
        store<EDGES>(residual, row.j + k * row.step, n, a);
        row.packs[k].pack(a);
    }
#else
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) row.packs[k] = load_sum<EDGES>(x, residual, row.j + k * row.step, n);
#endif
#if ITEMS <= 2 && !defined(EXPONENTIALS) && !defined(OP_group_norm)
    // Nor are their weights waited for after the others.
    __shared__ Stats room[MOST_WARPS];
    Math w[ITEMS][WIDTH], b[ITEMS][WIDTH];
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const i32 j = row.j + k * row.step;
        if (j >= n) break;
        weights<EDGES, !EDGES>(w[k], weight, lines.weight_step, 1, j, 0, lines);
#if !defined(OP_rms_norm)
        weights<EDGES, !EDGES>(b[k], bias, lines.bias_step, 0, j, 0, lines);
#endif
    }
    const Found found = over_team(look<EDGES>(row, n), room).found(lines);
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const i32 j = row.j + k * row.step;
        if (j >= n) break;
        Math v[WIDTH];
        row.packs[k].unpack(v);
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) v[i] = result(v[i], found, w[k][i], b[k][i]);
        store<EDGES>(out + at[1], j, n, v);
    }
#else
    line<EDGES>(row, weight, bias, out + at[1], which, n, lines);
#endif
}
#define PARAMETERS const T *x, T *residual, WEIGHTS, V *out, Lines lines
#if PARTS
#if !defined(__AMDGCN__) && __CUDA_ARCH__ >= 900
// A part of a row in shared memory, where a thread touches no others' packs.
struct Waiting {
    Items *packs;
    i32 j;
    template <class F> __device__ inline void each(F f) {
#pragma unroll
        for (int k = 0; k < ITEMS; ++k) f(packs[k * THREADS], j + k * (THREADS * WIDTH));
    }
};

__device__ inline void copy_pack(Items *to, const T *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from) : "memory");
}

// PARTS blocks, a cluster, have a row together, and one row after the other. A block has the same part of each: its weights stay in
// registers, where they would else be read for every row. The parts of the next rows are on their way meanwhile.
extern "C" __global__ void __cluster_dims__(PARTS, 1, 1) BOUNDS SYMBOL(NAME, _clusters)(PARAMETERS) {
    extern __shared__ uint4 stage[];
    take_turn();
    // The others' memory may be written when all have begun.
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    // What each warp of the cluster knows of its part of a row.
    __shared__ Stats shares[2][32];
    static_assert(PARTS * THREADS == 32 * 32, "a lane for each warp of the cluster");
    const i32 n = (i32)lines.n;
    const u32 part = blockIdx.x % PARTS, lane = threadIdx.x % 32;
    const u64 teams = gridDim.x / PARTS;
    Waiting row;
    row.j = (i32)((part * ITEMS * THREADS + threadIdx.x) * WIDTH);
    const auto place_of = [&](u32 turn) { return (Items *)stage + turn % STAGES * (ITEMS * THREADS) + threadIdx.x; };
    const auto begin = [&](u64 which, u32 turn) {
        if (which < lines.walk.n) {
            u64 at[1];
            place(lines.walk, which, at);
            row.packs = place_of(turn);
            row.each([&](Items &items, i32 j) {
                if (j < n) copy_pack(&items, x + at[0] + j);
            });
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    const auto over_warp = [](Stats mine) {
#pragma unroll
        for (int mask = 16; mask > 0; mask /= 2) mine.merge(across(mine, mask, 32));
        return mine;
    };
    // Looks at a row, and tells all blocks: lane k tells block k.
    const auto tell = [&](u32 turn) {
        row.packs = place_of(turn);
        const Stats mine = over_warp(look<false>(row, n));
        if (lane < PARTS) {
            u32 there, words[sizeof(Stats) / 4];
            const u32 here = (u32)__cvta_generic_to_shared(&shares[turn % 2][part * (32 / PARTS) + threadIdx.x / 32]);
            asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(lane));
            memcpy(words, &mine, sizeof(Stats));
#pragma unroll
            for (int k = 0; k < sizeof(Stats) / 4; ++k)
                asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(there + 4 * k), "r"(words[k]) : "memory");
        }
        __syncwarp();
        asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    };
    const auto told = [&](u32 turn) {
        asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
        return over_warp(shares[turn % 2][lane]).found(lines);
    };
    u64 which = blockIdx.x / PARTS;
#pragma unroll
    for (int s = 0; s < STAGES; ++s) {
        row.packs = place_of(s);
        row.each([&](Items &items, i32 j) {
            if (j >= n) items = load<false>(x, j, n);
        });
        begin(which + s * teams, s);
    }
    Math w[ITEMS][WIDTH], b[ITEMS][WIDTH];
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const i32 j = row.j + k * (THREADS * WIDTH);
        if (j >= n) continue;
        weights<false, true>(w[k], weight, lines.weight_step, 1, j, 0, lines);
        weights<false, true>(b[k], bias, lines.bias_step, 0, j, 0, lines);
    }
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 1) : "memory");
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
    tell(0);
    Found found = told(0);
    for (u32 turn = 0; which < lines.walk.n; ++turn) {
        // While the others look at the next row, this one is finished, and what is read of it makes room for a later one.
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        const bool more = which + teams < lines.walk.n;
        if (more) tell(turn + 1);
        u64 at[2];
        place(lines.walk, which, at);
        row.packs = place_of(turn);
        const u64 later = which + STAGES * teams;
        u64 from[1];
        place(lines.walk, later < lines.walk.n ? later : 0, from);
#pragma unroll
        for (int k = 0; k < ITEMS; ++k) {
            const i32 j = row.j + k * (THREADS * WIDTH);
            if (j >= n) break;
            Math y[WIDTH];
            row.packs[k * THREADS].unpack(y);
            if (later < lines.walk.n) copy_pack(row.packs + k * THREADS, x + from[0] + j);
#pragma unroll
            for (int i = 0; i < WIDTH; ++i) y[i] = result(y[i], found, w[k][i], b[k][i]);
            store<false>(out + at[1], j, n, y);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
        if (more) found = told(turn + 1);
        which += teams;
    }
}
#else
extern "C" __global__ void SYMBOL(NAME, _clusters)(PARAMETERS) {}
#endif
#else
extern "C" __global__ void BOUNDS SYMBOL(NAME, _registers)(PARAMETERS) { in_registers<false>(x, residual, weight, bias, out, lines); }
#if ITEMS <= 4 && !defined(OP_group_norm)
extern "C" __global__ void LOOSE SYMBOL(NAME, _edges)(PARAMETERS) { in_registers<true>(x, residual, weight, bias, out, lines); }
#endif
#endif
#else

// HELD packs of each thread wait in registers, the others in shared memory, where it touches no others'.
struct Staged {
    Items packs[HELD + 1], *stage;
    i32 n;
    template <class F> __device__ inline void each(F f) {
        const i32 team = blockDim.x;
#pragma unroll
        for (int k = 0; k < HELD; ++k) f(packs[k], (i32)(threadIdx.x + k * team) * WIDTH);
#pragma unroll 4
        for (i32 i = threadIdx.x; (i + HELD * team) * WIDTH < n; i += team) f(stage[i], (i + HELD * team) * WIDTH);
    }
};
extern "C" __global__ void BOUNDS SYMBOL(NAME, _staged)(const T *x, T *residual, WEIGHTS, V *out, Lines lines) {
    take_turn();
    extern __shared__ uint4 stage[];
    u64 at[3];
    place(lines.walk, blockIdx.x, at);
    Staged row;
    row.stage = (Items *)stage;
    row.n = (i32)lines.n;
    x += at[0];
    if (RESIDUAL) residual += at[2];
    const i32 n = row.n, team = blockDim.x;
    for (i32 i = threadIdx.x; (i + HELD * team) * WIDTH < n; i += team) {
        const i32 j = (i + HELD * team) * WIDTH;
#if defined(ASYNC_COPIES)
        const u32 to = (u32)__cvta_generic_to_shared(stage + i);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(x + j) : "memory");
#else
        row.stage[i] = load_sum<false>(x, residual, j, n);
#endif
    }
#pragma unroll
    for (int k = 0; k < HELD; ++k) row.packs[k] = load_sum<false>(x, residual, (i32)(threadIdx.x + k * team) * WIDTH, n);
#if defined(ASYNC_COPIES)
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
    line<false>(row, weight, bias, out + at[1], blockIdx.x, n, lines);
}

// One element, by itself: with the residual, which is updated; and its result.
__device__ inline T one_sum(const T *x, T *residual) {
    T element = *x;
    if (RESIDUAL) element = *residual = Narrow<T>::from(widen(element) + widen(*residual));
    return element;
}
__device__ inline V one_result(T element, const Found &found, const U *weight, const U *bias, u64 j, u64 channel, const Lines &lines) {
    Math w = 1, b = 0;
#if !defined(EXPONENTIALS)
#if defined(OP_group_norm)
    j = channel + quotient(j, lines.spatial);
#endif
    if (weight) w = widen(weight[j * lines.weight_step]);
    if (bias) b = widen(bias[j * lines.bias_step]);
#endif
    return Narrow<V>::from(result(widen(element), found, w, b));
}

// A block for a row: packs where all operands have them at the same places, else one element at a time.
extern "C" __global__ void LOOSE SYMBOL(NAME, _long)(const T *x, T *residual, WEIGHTS, V *out, Lines lines) {
    take_turn();
    __shared__ Stats room[MOST_WARPS];
    for (u64 row = blockIdx.x; row < lines.walk.n; row += gridDim.x) {
        u64 at[3];
        place(lines.walk, row, at);
        const T *from = x + at[0];
        T *sum = RESIDUAL ? residual + at[2] : 0;
        V *to = out + at[1];
        const u64 n = lines.n, lane = threadIdx.x, team = blockDim.x, ahead = before_aligned(from);
        const bool alike = (u64)(to + ahead) % (WIDTH * sizeof(V)) == 0 && (!RESIDUAL || before_aligned(sum) == ahead);
        const u64 head = alike && ahead < n ? ahead : n, packs = (n - head) / WIDTH, singles = n - packs * WIDTH;
        Stats stats;
        stats.clear();
#pragma unroll 1
        for (u64 i = lane; i < singles; i += team) {
            const u64 j = i < head ? i : i + packs * WIDTH;
            Math one[1] = {widen(one_sum(from + j, sum + j))};
            stats.template add<1>(one);
        }
#pragma unroll 1
        for (u64 i = lane; i < packs; i += LOADS * team) {
            Items items[LOADS];
#pragma unroll
            for (int k = 0; k < LOADS; ++k) {
                const u64 pack = i + k * team;
                if (pack < packs) items[k] = load_sum<false>(from, sum, head + pack * WIDTH, n);
            }
#pragma unroll
            for (int k = 0; k < LOADS; ++k) {
                Math v[WIDTH];
                items[k].unpack(v);
                if (i + k * team < packs) stats.template add<WIDTH>(v);
            }
        }
        const Found found = over_team(stats, room).found(lines);
        const u64 channel = first_channel(row, lines);
        const T *again = RESIDUAL ? sum : from;
#pragma unroll 1
        for (u64 i = lane; i < singles; i += team) {
            const u64 j = i < head ? i : i + packs * WIDTH;
            to[j] = one_result(again[j], found, weight, bias, j, channel, lines);
        }
#pragma unroll 1
        for (u64 i = lane; i < packs; i += LOADS * team) {
            Items items[LOADS];
#pragma unroll
            for (int k = 0; k < LOADS; ++k)
                if (i + k * team < packs) items[k].load(again + head + (i + k * team) * WIDTH);
#pragma unroll
            for (int k = 0; k < LOADS; ++k)
                if (i + k * team < packs) finish<false, false>(to, items[k], found, weight, bias, head + (i + k * team) * WIDTH, n, channel, lines);
        }
        __syncthreads();
    }
}

// Threads of one threadIdx.x share a row; `within` walks it.
extern "C" __global__ void LOOSE SYMBOL(NAME, _strided)(const T *x, T *residual, WEIGHTS, V *out, Lines lines, Walk within) {
    take_turn();
    __shared__ Stats room[256];
    const u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x, n = row < lines.walk.n ? lines.n : 0;
    u64 at[3];
    place(lines.walk, n ? row : 0, at);
    Stats stats;
    stats.clear();
    for (u64 i = threadIdx.y; i < n; i += blockDim.y) {
        u64 there[3];
        place(within, i, there);
        Math one[1] = {widen(one_sum(x + at[0] + there[0], residual + at[2] + there[2]))};
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
        out[at[1] + there[1]] = one_result(element, found, weight, bias, i, channel, lines);
    }
}
#endif
