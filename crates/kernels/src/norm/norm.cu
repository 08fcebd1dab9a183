// Softmax, log-softmax and norms of rows. T is the type of the elements, U that of weight and bias, V that of the results.
//
// `registers` keeps a row in registers, ITEMS vectors per thread; `edges` does so for short rows with partial or unaligned vectors; with
// CLUSTER_BLOCKS, `clusters` distributes rows over the shared memory of a cluster. Without ITEMS, `staged` keeps a row in shared memory,
// `long` reads it twice, and so does `strided`, for any layout.
//
// With RESIDUAL the input is first added to `residual`, which keeps the rounded sum; the norm is of that.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME rms_norm_f32
#define OP_rms_norm
#define T f32
#define ITEMS 4
#define RESIDUAL 0
#define THREADS 256
#define BLOCKS 2
#define REGISTER_PACKS 0
#endif

#include "common/pdl.cuh"
#include "common/row_reduce.cuh"

#if !defined(U)
#define U T
#endif
#if !defined(V)
#define V T
#endif
typedef Traits<T>::Math Math;
#define WIDTH (16 / (int)sizeof(T))
#define MAX_WARPS 32
#define LOADS 4
// The most channels whose weights are cached in shared memory.
#define MAX_CHANNELS 1024
// Bounds registers for BLOCKS resident blocks.
#if defined(__AMDGCN__)
#define BOUNDS __launch_bounds__(THREADS)
#define LOOSE_BOUNDS __launch_bounds__(THREADS)
#else
#define BOUNDS __launch_bounds__(THREADS, BLOCKS)
#define LOOSE_BOUNDS
#endif
#if !RESIDUAL && !defined(__AMDGCN__) && __CUDA_ARCH__ >= 800
#define ASYNC_COPIES 1
#endif

// Not aliased by the results, so later loads may precede earlier stores.
#define WEIGHTS const U *__restrict__ weight, const U *__restrict__ bias

struct NormParams {
    // Elements of a row.
    u64 n;
    // Group norm: elements per channel, and groups; and the 32-bit division by the former: high half of a product, an addition, a shift.
    u64 spatial, groups;
    u32 magic, shift;
    // Strides of weights and biases.
    u64 weight_stride, bias_stride;
    f64 epsilon;
    // Over rows: the strides of the input, the result and the residual.
    RowDims row_dims;
};

#if defined(OP_softmax) || defined(OP_log_softmax)
#define SOFTMAX
#define IDENTITY (-__uint_as_float(0x7f800000u))
#else
#define IDENTITY 0
#endif

// exp(x - most). For 16-bit results the hardware's exponential is accurate enough.
template <int BYTES> __device__ inline Math exponential(Math x, Math most) {
    if constexpr (BYTES > 2) {
        return exp(x - most);
    } else {
        const f32 log2e = 1.44269504088896341f, power = ((f32)x - (f32)most) * log2e;
        return exp2_approx(power);
    }
}

struct Max {
    static __device__ inline Math of(Math a, Math b) { return fmax(a, b); }
};

// The statistics of a row, and the results from them.
struct RowStats {
    Math a, b;
};
__device__ inline Math result(Math x, const RowStats &row_stats, Math weight, Math bias) {
#if defined(OP_softmax)
    return exponential<sizeof(T)>(x, row_stats.a) * row_stats.b;
#elif defined(OP_log_softmax)
    return x - row_stats.a - row_stats.b;
#elif defined(OP_rms_norm)
    return x * row_stats.a * weight;
#else
    return fma((x - row_stats.a) * row_stats.b, weight, bias);
#endif
}

// Computed in one pass over the elements.
#if defined(SOFTMAX)
struct Stats {
    Math most, total;
    __device__ inline void clear() { most = IDENTITY; total = 0; }
    // While only -∞ was seen, nothing is subtracted.
    static __device__ inline Math base(Math most) { return most == IDENTITY ? (Math)0 : most; }
    template <int N> __device__ inline void add(const Math (&x)[N]) {
        const Math before = most;
        most = fmax(most, tree_reduce<Max, N>(x));
        Math e[N];
#pragma unroll
        for (int k = 0; k < N; ++k) e[k] = exponential<sizeof(T)>(x[k], base(most));
        total = total * exponential<sizeof(T)>(before, base(most)) + tree_reduce<Sum, N>(e);
    }
    __device__ inline void merge(const Stats &other) {
        const Math both = fmax(most, other.most), here = base(both);
        total = total * exponential<sizeof(T)>(most, here) + other.total * exponential<sizeof(T)>(other.most, here);
        most = both;
    }
    __device__ inline RowStats row_stats(const NormParams &) const {
#if defined(OP_softmax)
        RowStats row_stats = {most, 1 / total};
#else
        RowStats row_stats = {most, log(total)};
#endif
        return row_stats;
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
        squares += tree_reduce<Sum, N>(y);
    }
    __device__ inline void merge(const Stats &other) { squares += other.squares; }
    __device__ inline RowStats row_stats(const NormParams &params) const {
        RowStats row_stats = {rsqrt(squares / (Math)params.n + (Math)params.epsilon), 0};
        return row_stats;
    }
};
#else
struct Stats {
    Welford<Math> moments;
    __device__ inline void clear() { moments.clear(); }
    template <int N> __device__ inline void add(const Math (&x)[N]) { moments.template add<N>(x); }
    __device__ inline void merge(const Stats &other) { moments.merge(other.moments); }
    __device__ inline RowStats row_stats(const NormParams &params) const {
        RowStats row_stats = {moments.mean, rsqrt(moments.squares / (Math)params.n + (Math)params.epsilon)};
        return row_stats;
    }
};
#endif

typedef Bundle<T, WIDTH> Items;

// Whether the vector at `j` lies within a row of `n`. Without EDGES, vectors are inside or outside as a whole.
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
        for (int w = 0; w < WIDTH; ++w) x[w] = EDGES && j + w >= 0 && j + w < n ? widen(row[j + w]) : (Math)IDENTITY;
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

// Loads with the residual, which is updated.
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

// Weights from element `j` of a row on; `channel` is the row's first. `none` replaces missing weights. PACKED: read as vectors.
template <bool EDGES, bool PACKED>
__device__ inline void weights(Math (&w)[WIDTH], const U *from, u64 step, Math none, i64 j, u64 channel, const NormParams &params) {
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
            const bool there = !EDGES || (j + k >= 0 && j + k < params.n);
#if defined(OP_group_norm)
            w[k] = there ? widen(from[(channel + quotient(j + k, params.spatial)) * step]) : (Math)0;
#else
            w[k] = there ? widen(from[(j + k) * step]) : (Math)0;
#endif
        }
    }
}

// Stores the results of the vector at `j`.
template <bool EDGES, bool PACKED>
__device__ inline void finish(V *out, const Items &items, const RowStats &row_stats, const U *weight, const U *bias, i64 j, i64 n, u64 channel,
                              const NormParams &params) {
    Math w[WIDTH], b[WIDTH];
#if !defined(SOFTMAX)
    weights<EDGES, PACKED>(w, weight, params.weight_stride, 1, j, channel, params);
#if !defined(OP_rms_norm)
    weights<EDGES, PACKED>(b, bias, params.bias_stride, 0, j, channel, params);
#endif
#endif
    Math x[WIDTH];
    items.unpack(x);
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) x[k] = result(x[k], row_stats, w[k], b[k]);
    store<EDGES>(out, j, n, x);
}

__device__ inline u64 first_channel(u64 row, const NormParams &params) {
#if defined(OP_group_norm)
    return (row - quotient(row, params.groups) * params.groups) * quotient(params.n, params.spatial);
#else
    return 0;
#endif
}

// Computes a row's statistics from vectors that are visited more than once: row.each() passes them to a function. Elements outside the row
// are neutral.
template <bool EDGES, class Row> __device__ inline Stats look(Row &row, i32 n) {
    Stats stats;
    stats.clear();
#if defined(SOFTMAX)
    row.each([&](const Items &items, i32) {
        Math v[WIDTH];
        items.unpack(v);
        stats.most = fmax(stats.most, tree_reduce<Max, WIDTH>(v));
    });
    row.each([&](const Items &items, i32) {
        Math v[WIDTH];
        items.unpack(v);
#pragma unroll
        for (int w = 0; w < WIDTH; ++w) v[w] = exponential<sizeof(T)>(v[w], Stats::base(stats.most));
        stats.total += tree_reduce<Sum, WIDTH>(v);
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
        sum += tree_reduce<Sum, WIDTH>(v);
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

// Normalizes a row whose operands are loaded.
template <bool EDGES, class Row>
__device__ inline void line(Row &row, const U *weight, const U *bias, V *out, u64 which, i32 n, const NormParams &params) {
    __shared__ Stats smem[MAX_WARPS];
#if defined(OP_group_norm)
    // The channels' weights load together with the row.
    __shared__ Math near[2][MAX_CHANNELS];
    const u32 channels = (u32)quotient(params.n, params.spatial), mine = threadIdx.y * channels;
    for (u32 c = threadIdx.x; c < channels; c += blockDim.x) {
        const u64 channel = first_channel(which, params) + c;
        near[0][mine + c] = weight ? widen(weight[channel * params.weight_stride]) : (Math)1;
        near[1][mine + c] = bias ? widen(bias[channel * params.bias_stride]) : (Math)0;
    }
    __syncthreads();
#endif
    const RowStats row_stats = reduce_row(look<EDGES>(row, n), smem).row_stats(params);
    row.each([&](const Items &items, i32 j) {
        if (j >= n) return;
#if defined(OP_group_norm)
        const u32 c = mine + ((__umulhi((u32)j, params.magic) + (u32)j) >> params.shift);
        const Math w = near[0][c], b = near[1][c];
        Math x[WIDTH];
        items.unpack(x);
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) x[k] = result(x[k], row_stats, w, b);
        store<EDGES>(out, j, n, x);
#else
        finish<EDGES, !EDGES>(out, items, row_stats, weight, bias, j, n, 0, params);
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
            // Hides the value: otherwise the converted elements would be kept, in twice the registers.
            if (sizeof(T) < 4) asm volatile("" : "+r"(packs[k].raw.x), "+r"(packs[k].raw.y), "+r"(packs[k].raw.z), "+r"(packs[k].raw.w));
#endif
            f(packs[k], j + k * step);
        }
    }
};

template <bool EDGES>
__device__ inline void in_registers(const T *x, T *residual, const U *weight, const U *bias, V *out, const NormParams &params) {
    const u64 which = (u64)blockIdx.x * blockDim.y + threadIdx.y;
    u64 at[3];
    place(params.row_dims, which < params.row_dims.n ? which : 0, at);
    // Surplus thread groups have an empty row.
    const i32 n = which < params.row_dims.n ? (i32)params.n : 0;
    x += at[0];
    if (RESIDUAL) residual += at[2];
    Registers row;
    row.j = (i32)threadIdx.x * WIDTH - (EDGES ? (i32)((u64)x % 16 / sizeof(T)) : 0);
    row.step = (i32)blockDim.x * WIDTH;
    pdl_launch_dependents();
#if ITEMS <= 2 && !defined(SOFTMAX) && !defined(OP_group_norm) && !defined(__AMDGCN__)
    // With few rows, weights are not in cache: prefetch them.
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const i32 j = row.j + k * row.step;
        if (weight && j >= 0 && j < n) asm volatile("prefetch.global.L2 [%0];" ::"l"(weight + j * params.weight_stride));
    }
#endif
    pdl_wait();
#if RESIDUAL && ITEMS <= 2
    // All loads are issued before the first sum is stored: with few rows nothing else hides their latency.
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
#if ITEMS <= 2 && !defined(SOFTMAX) && !defined(OP_group_norm)
    // The weights are loaded at the same time.
    __shared__ Stats smem[MAX_WARPS];
    Math w[ITEMS][WIDTH], b[ITEMS][WIDTH];
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const i32 j = row.j + k * row.step;
        if (j >= n) break;
        weights<EDGES, !EDGES>(w[k], weight, params.weight_stride, 1, j, 0, params);
#if !defined(OP_rms_norm)
        weights<EDGES, !EDGES>(b[k], bias, params.bias_stride, 0, j, 0, params);
#endif
    }
    const RowStats row_stats = reduce_row(look<EDGES>(row, n), smem).row_stats(params);
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const i32 j = row.j + k * row.step;
        if (j >= n) break;
        Math v[WIDTH];
        row.packs[k].unpack(v);
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) v[i] = result(v[i], row_stats, w[k][i], b[k][i]);
        store<EDGES>(out + at[1], j, n, v);
    }
#else
    line<EDGES>(row, weight, bias, out + at[1], which, n, params);
#endif
}
#define PARAMETERS const T *x, T *residual, WEIGHTS, V *out, NormParams params
#if CLUSTER_BLOCKS
#if !defined(__AMDGCN__) && __CUDA_ARCH__ >= 900
// A part of a row in shared memory; a thread accesses only its own vectors.
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

// A cluster of CLUSTER_BLOCKS blocks shares each row. A block has the same part of every row, so its weights stay in registers. Parts of
// the next rows are prefetched.
extern "C" __global__ void __cluster_dims__(CLUSTER_BLOCKS, 1, 1) BOUNDS KERNEL_NAME(NAME, _clusters)(PARAMETERS) {
    extern __shared__ uint4 stage[];
    pdl_sync();
    // Other blocks' shared memory may be written only after all have started.
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    // Statistics of each warp of the cluster.
    __shared__ Stats shares[2][32];
    static_assert(CLUSTER_BLOCKS * THREADS == 32 * 32, "a lane for each warp of the cluster");
    const i32 n = (i32)params.n;
    const u32 part = blockIdx.x % CLUSTER_BLOCKS, lane = threadIdx.x % 32;
    const u64 teams = gridDim.x / CLUSTER_BLOCKS;
    Waiting row;
    row.j = (i32)((part * ITEMS * THREADS + threadIdx.x) * WIDTH);
    const auto place_of = [&](u32 turn) { return (Items *)stage + turn % STAGES * (ITEMS * THREADS) + threadIdx.x; };
    const auto begin = [&](u64 which, u32 turn) {
        if (which < params.row_dims.n) {
            u64 at[1];
            place(params.row_dims, which, at);
            row.packs = place_of(turn);
            row.each([&](Items &items, i32 j) {
                if (j < n) copy_pack(&items, x + at[0] + j);
            });
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    const auto over_warp = [](Stats mine) {
#pragma unroll
        for (int mask = 16; mask > 0; mask /= 2) mine.merge(shuffle_xor(mine, mask, 32));
        return mine;
    };
    // Computes the statistics of a row and sends them to all blocks: lane k sends to block k.
    const auto tell = [&](u32 turn) {
        row.packs = place_of(turn);
        const Stats mine = over_warp(look<false>(row, n));
        if (lane < CLUSTER_BLOCKS) {
            u32 there, words[sizeof(Stats) / 4];
            const u32 here = (u32)__cvta_generic_to_shared(&shares[turn % 2][part * (32 / CLUSTER_BLOCKS) + threadIdx.x / 32]);
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
        return over_warp(shares[turn % 2][lane]).row_stats(params);
    };
    u64 which = blockIdx.x / CLUSTER_BLOCKS;
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
        weights<false, true>(w[k], weight, params.weight_stride, 1, j, 0, params);
        weights<false, true>(b[k], bias, params.bias_stride, 0, j, 0, params);
    }
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 1) : "memory");
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
    tell(0);
    RowStats row_stats = told(0);
    for (u32 turn = 0; which < params.row_dims.n; ++turn) {
        // While others process the next row, this one is finished, which frees its stage.
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        const bool more = which + teams < params.row_dims.n;
        if (more) tell(turn + 1);
        u64 at[2];
        place(params.row_dims, which, at);
        row.packs = place_of(turn);
        const u64 later = which + STAGES * teams;
        u64 from[1];
        place(params.row_dims, later < params.row_dims.n ? later : 0, from);
#pragma unroll
        for (int k = 0; k < ITEMS; ++k) {
            const i32 j = row.j + k * (THREADS * WIDTH);
            if (j >= n) break;
            Math y[WIDTH];
            row.packs[k * THREADS].unpack(y);
            if (later < params.row_dims.n) copy_pack(row.packs + k * THREADS, x + from[0] + j);
#pragma unroll
            for (int i = 0; i < WIDTH; ++i) y[i] = result(y[i], row_stats, w[k][i], b[k][i]);
            store<false>(out + at[1], j, n, y);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
        if (more) row_stats = told(turn + 1);
        which += teams;
    }
}
#else
extern "C" __global__ void KERNEL_NAME(NAME, _clusters)(PARAMETERS) {}
#endif
#else
extern "C" __global__ void BOUNDS KERNEL_NAME(NAME, _registers)(PARAMETERS) { in_registers<false>(x, residual, weight, bias, out, params); }
#if ITEMS <= 4 && !defined(OP_group_norm)
extern "C" __global__ void LOOSE_BOUNDS KERNEL_NAME(NAME, _edges)(PARAMETERS) { in_registers<true>(x, residual, weight, bias, out, params); }
#endif
#endif
#else

// REGISTER_PACKS vectors per thread stay in registers, the others in shared memory, where a thread accesses only its own.
struct Staged {
    Items packs[REGISTER_PACKS + 1], *stage;
    i32 n;
    template <class F> __device__ inline void each(F f) {
        const i32 team = blockDim.x;
#pragma unroll
        for (int k = 0; k < REGISTER_PACKS; ++k) f(packs[k], (i32)(threadIdx.x + k * team) * WIDTH);
#pragma unroll 4
        for (i32 i = threadIdx.x; (i + REGISTER_PACKS * team) * WIDTH < n; i += team) f(stage[i], (i + REGISTER_PACKS * team) * WIDTH);
    }
};
extern "C" __global__ void BOUNDS KERNEL_NAME(NAME, _staged)(const T *x, T *residual, WEIGHTS, V *out, NormParams params) {
    pdl_sync();
    extern __shared__ uint4 stage[];
    u64 at[3];
    place(params.row_dims, blockIdx.x, at);
    Staged row;
    row.stage = (Items *)stage;
    row.n = (i32)params.n;
    x += at[0];
    if (RESIDUAL) residual += at[2];
    const i32 n = row.n, team = blockDim.x;
    for (i32 i = threadIdx.x; (i + REGISTER_PACKS * team) * WIDTH < n; i += team) {
        const i32 j = (i + REGISTER_PACKS * team) * WIDTH;
#if defined(ASYNC_COPIES)
        const u32 to = (u32)__cvta_generic_to_shared(stage + i);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(x + j) : "memory");
#else
        row.stage[i] = load_sum<false>(x, residual, j, n);
#endif
    }
#pragma unroll
    for (int k = 0; k < REGISTER_PACKS; ++k) row.packs[k] = load_sum<false>(x, residual, (i32)(threadIdx.x + k * team) * WIDTH, n);
#if defined(ASYNC_COPIES)
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
    line<false>(row, weight, bias, out + at[1], blockIdx.x, n, params);
}

// A single element: its sum with the residual, which is updated; and its result.
__device__ inline T one_sum(const T *x, T *residual) {
    T element = *x;
    if (RESIDUAL) element = *residual = Narrow<T>::from(widen(element) + widen(*residual));
    return element;
}
__device__ inline V one_result(T element, const RowStats &row_stats, const U *weight, const U *bias, u64 j, u64 channel, const NormParams &params) {
    Math w = 1, b = 0;
#if !defined(SOFTMAX)
#if defined(OP_group_norm)
    j = channel + quotient(j, params.spatial);
#endif
    if (weight) w = widen(weight[j * params.weight_stride]);
    if (bias) b = widen(bias[j * params.bias_stride]);
#endif
    return Narrow<V>::from(result(widen(element), row_stats, w, b));
}

// A block per row: vectors if all operands have the same alignment, otherwise single elements.
extern "C" __global__ void LOOSE_BOUNDS KERNEL_NAME(NAME, _long)(const T *x, T *residual, WEIGHTS, V *out, NormParams params) {
    pdl_sync();
    __shared__ Stats smem[MAX_WARPS];
    for (u64 row = blockIdx.x; row < params.row_dims.n; row += gridDim.x) {
        u64 at[3];
        place(params.row_dims, row, at);
        const T *from = x + at[0];
        T *sum = RESIDUAL ? residual + at[2] : 0;
        V *to = out + at[1];
        const u64 n = params.n, lane = threadIdx.x, team = blockDim.x, unaligned = before_aligned(from);
        const bool alike = (u64)(to + unaligned) % (WIDTH * sizeof(V)) == 0 && (!RESIDUAL || before_aligned(sum) == unaligned);
        const u64 head = alike && unaligned < n ? unaligned : n, packs = (n - head) / WIDTH, singles = n - packs * WIDTH;
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
        const RowStats row_stats = reduce_row(stats, smem).row_stats(params);
        const u64 channel = first_channel(row, params);
        const T *again = RESIDUAL ? sum : from;
#pragma unroll 1
        for (u64 i = lane; i < singles; i += team) {
            const u64 j = i < head ? i : i + packs * WIDTH;
            to[j] = one_result(again[j], row_stats, weight, bias, j, channel, params);
        }
#pragma unroll 1
        for (u64 i = lane; i < packs; i += LOADS * team) {
            Items items[LOADS];
#pragma unroll
            for (int k = 0; k < LOADS; ++k)
                if (i + k * team < packs) items[k].load(again + head + (i + k * team) * WIDTH);
#pragma unroll
            for (int k = 0; k < LOADS; ++k)
                if (i + k * team < packs) finish<false, false>(to, items[k], row_stats, weight, bias, head + (i + k * team) * WIDTH, n, channel, params);
        }
        __syncthreads();
    }
}

// Threads with the same threadIdx.x share a row; `within` iterates over it.
extern "C" __global__ void LOOSE_BOUNDS KERNEL_NAME(NAME, _strided)(const T *x, T *residual, WEIGHTS, V *out, NormParams params, RowDims within) {
    pdl_sync();
    __shared__ Stats smem[256];
    const u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x, n = row < params.row_dims.n ? params.n : 0;
    u64 at[3];
    place(params.row_dims, n ? row : 0, at);
    Stats stats;
    stats.clear();
    for (u64 i = threadIdx.y; i < n; i += blockDim.y) {
        u64 there[3];
        place(within, i, there);
        Math one[1] = {widen(one_sum(x + at[0] + there[0], residual + at[2] + there[2]))};
        stats.template add<1>(one);
    }
    smem[threadIdx.y * blockDim.x + threadIdx.x] = stats;
    for (u32 half = blockDim.y / 2; half > 0; half /= 2) {
        __syncthreads();
        Stats *mine = smem + threadIdx.y * blockDim.x + threadIdx.x;
        if (threadIdx.y < half) mine->merge(mine[half * blockDim.x]);
    }
    __syncthreads();
    const RowStats row_stats = smem[threadIdx.x].row_stats(params);
    const u64 channel = first_channel(row, params);
    for (u64 i = threadIdx.y; i < n; i += blockDim.y) {
        u64 there[3];
        place(within, i, there);
        const T element = RESIDUAL ? residual[at[2] + there[2]] : x[at[0] + there[0]];
        out[at[1] + there[1]] = one_result(element, row_stats, weight, bias, i, channel, params);
    }
}
#endif
