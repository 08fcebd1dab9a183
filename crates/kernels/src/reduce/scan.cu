// Cumulative sums along an axis, with decoupled look-back. T is the type of the elements, U that of the sums.
//
// Every element is read once: a block keeps a part of a row in registers (`rows`), or parts of adjacent rows (`columns`). If a row has
// several parts, a block publishes the sum of its own and waits for those of previous parts. Parts are taken in order, so a block waits
// only for blocks that have started. Additions are in the same order in every run.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME cumsum_f32_f32
#define T f32
#define U f32
#define ROW_PACKS 8
#define COLUMN_PACKS 16
#define ASYNC_PACKS 16
#define ACROSS 8
#endif

#include "common/row_reduce.cuh"

typedef Traits<T>::Math Math;
// Elements of a vector: consecutive in a row, or one of each of adjacent rows. More than 8 sums would not fit the registers.
#define WIDEST (sizeof(T) > sizeof(U) ? sizeof(T) : sizeof(U))
#define WIDTH (16 / (int)(WIDEST > 2 ? WIDEST : 2))
// Vectors per thread: along a row, and below one another.
#define MAX_WARPS 32
// The most threads of a block; and registers for BLOCKS resident blocks.
#define THREADS 256
#if defined(__AMDGCN__)
#define BOUNDS(BLOCKS) __launch_bounds__(THREADS)
#else
#define BOUNDS(BLOCKS) __launch_bounds__(THREADS, BLOCKS)
#endif
// Parts of adjacent rows per look-back group; then one prefix covers all before.
#define GROUP 16

template <bool INTEGER, int BYTES> struct Running { typedef Math Type; };
template <int BYTES> struct Running<true, BYTES> { typedef u32 Type; };
template <> struct Running<true, 8> { typedef u64 Type; };
typedef Running<Traits<T>::INTEGER, sizeof(U)>::Type Total;

struct ScanParams {
    // Elements of a row, and parts.
    u64 n, parts;
    // Strides between elements of a row.
    u64 in_stride, out_stride;
    // Over rows: the strides of the input and the result. In `columns`, the innermost dimension is in vectors.
    RowDims row_dims;
};

// Look-back memory: the sum of each part and, after those, the prefix of each group; a counter of parts comes first. A 32-bit word is
// stored together with its flag, so no fence is needed, which would wait for all of a block's writes.
#define NONE (~0ull)
struct LookBack {
    u64 *words;
    static const int EACH = sizeof(Total) / 4;
    union Word {
        Total sum;
        u32 bits[EACH];
        __device__ Word() {}
    };

    template <int N> __device__ inline u64 *at(u64 which) const { return words + 2 + which * (N * EACH); }
    template <int N> __device__ inline void publish(u64 which, const Total (&sum)[N]) const {
        u64 *to = at<N>(which);
#pragma unroll
        for (int k = 0; k < N; ++k) {
            Word word;
            word.sum = sum[k];
#pragma unroll
            for (int e = 0; e < EACH; ++e) {
                const u64 flagged = word.bits[e] | 1ull << 32;
#if defined(__AMDGCN__)
                __hip_atomic_store(to + k * EACH + e, flagged, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
#else
                asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to + k * EACH + e), "l"(flagged) : "memory");
#endif
            }
        }
    }
    // Adds what another block published, or will publish.
    template <int N> __device__ inline void add(u64 which, Total (&sum)[N]) const {
        if (which == NONE) return;
        u64 *from = at<N>(which), got[N * EACH], all;
        do {
            all = ~0ull;
#pragma unroll
            for (int k = 0; k < N * EACH; k += 2) {
#if defined(__AMDGCN__)
                got[k] = __hip_atomic_load(from + k, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
                if (N * EACH > 1) got[k + 1] = __hip_atomic_load(from + k + 1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
#else
                if constexpr (N * EACH == 1) asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(got[k]) : "l"(from + k) : "memory");
                else asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(got[k]), "=l"(got[k + 1]) : "l"(from + k) : "memory");
#endif
            }
#pragma unroll
            for (int k = 0; k < N * EACH; ++k) all &= got[k];
#if defined(__AMDGCN__)
            if (!(all >> 32)) __builtin_amdgcn_s_sleep(1);
#endif
        } while (!(all >> 32));
#pragma unroll
        for (int k = 0; k < N; ++k) {
            Word word;
#pragma unroll
            for (int e = 0; e < EACH; ++e) word.bits[e] = (u32)got[k * EACH + e];
            sum[k] += word.sum;
        }
    }
};

// The index of a block's part, over all rows. A block must not wait for one that has not started: NVIDIA's start in the order of their
// index, on which its own scans rely too; on others a counter assigns the order. Reading it takes as long as looking back.
__device__ inline u64 taken(const LookBack &look_back) {
#if defined(__AMDGCN__)
    if (look_back.words) {
        __shared__ u32 number;
        if (threadIdx.x == 0 && threadIdx.y == 0) number = atomicAdd((u32 *)look_back.words, 1u);
        __syncthreads();
        return number;
    }
#endif
    return (u64)blockIdx.y * gridDim.x + blockIdx.x;
}

// Elements of a vector as they are added. Hides the value: otherwise the converted elements would be kept, in twice the registers.
template <int N> __device__ inline void unpack(Total (&y)[N], Bundle<T, N> &pack) {
#if !defined(__AMDGCN__)
    if constexpr (sizeof(pack.raw) == 16) asm volatile("" : "+r"(pack.raw.x), "+r"(pack.raw.y), "+r"(pack.raw.z), "+r"(pack.raw.w));
#endif
    Math x[N];
    pack.unpack(x);
#pragma unroll
    for (int k = 0; k < N; ++k) y[k] = (Total)x[k];
}
template <int N> __device__ inline void store(U *to, const Total (&sums)[N]) {
    Pack<U, N> pack;
#pragma unroll
    for (int k = 0; k < N; k += 2) {
        if constexpr (Traits<U>::INTEGER) {
            pack.at[k] = (U)sums[k];
            if (N > 1) pack.at[k + 1] = (U)sums[k + 1];
        } else if constexpr (N > 1) {
            narrow_pair(pack.at + k, sums[k], sums[k + 1]);
        } else {
            pack.at[k] = convert<U>(sums[k]);
        }
    }
    put<U, N>(to, pack);
}

// Merged by reduce_row().
struct Whole {
    Total sum;
    __device__ inline void merge(const Whole &other) { sum += other.sum; }
};

// A thread group per part of a row. Each warp takes consecutive vectors, ROW_PACKS times.
template <int N> __device__ inline void lines(const T *x, U *out, const LookBack &look_back, const ScanParams &params) {
    __shared__ Total smem[MAX_WARPS];
    __shared__ Whole wholes[MAX_WARPS];
    const int team = blockDim.x, width = team < warpSize ? team : warpSize, lane = threadIdx.x % width, warps = team / width;
    const u64 all = params.row_dims.n * params.parts;
    const u64 first = taken(look_back) * blockDim.y, which = first + threadIdx.y;
    if (first >= all) return;
    // Surplus thread groups have an empty row.
    const u64 line = quotient(which < all ? which : 0, params.parts), part = (which < all ? which : 0) - line * params.parts;
    const u64 begin = part * team * (ROW_PACKS * N), rest = which < all ? params.n - begin : 0;
    const u32 n = rest < THREADS * ROW_PACKS * N ? rest : THREADS * ROW_PACKS * N, start = ((threadIdx.x - lane) * ROW_PACKS + lane) * N;
    u64 at[2];
    place(params.row_dims, line, at);
    const T *from = x + at[0] + begin * params.in_stride;
    U *to = out + at[1] + begin * params.out_stride;
    Bundle<T, N> packs[ROW_PACKS];
#pragma unroll
    for (int k = 0; k < ROW_PACKS; ++k) {
        const u32 j = start + k * width * N;
        if (j < n) packs[k].load(from + (N > 1 ? j : j * params.in_stride));
    }
    // Inclusive sums of the vectors within a warp's rows; one step of all rows at a time hides latency.
    Total up_to[ROW_PACKS], sum = 0;
#pragma unroll
    for (int k = 0; k < ROW_PACKS; ++k) {
        Total y[N];
        unpack<N>(y, packs[k]);
        up_to[k] = start + k * width * N < n ? tree_reduce<Sum, N>(y) : (Total)0;
    }
    for (int apart = 1; apart < width; apart *= 2) {
#pragma unroll
        for (int k = 0; k < ROW_PACKS; ++k) {
            const Total other = __shfl_up_sync(0xffffffffu, up_to[k], apart, width);
            if (lane >= apart) up_to[k] += other;
        }
    }
    // Exclusive sums, including the rows above. Subtracting a vector's own sum would lose digits.
#pragma unroll
    for (int k = 0; k < ROW_PACKS; ++k) {
        const Total row = __shfl_sync(0xffffffffu, up_to[k], width - 1, width), earlier = __shfl_up_sync(0xffffffffu, up_to[k], 1, width);
        up_to[k] = lane > 0 ? sum + earlier : sum;
        sum += row;
    }
    Total base = 0;
    if (warps > 1) {
        Total *const mine = smem + threadIdx.y * warps;
        if (lane == 0) mine[threadIdx.x / width] = sum;
        __syncthreads();
        sum = 0;
        for (int w = 0; w < warps; ++w) {
            if (w == threadIdx.x / width) base = sum;
            sum += mine[w];
        }
    }
    if (params.parts > 1) {
        const u64 group = quotient(part, team), there = line * (params.parts + quotient(params.parts, team)), groups = there + params.parts;
        Total some[1] = {sum};
        if (threadIdx.x == 0) look_back.publish<1>(there + part, some);
        some[0] = 0;
        // A group has fewer parts before this one than the thread group has threads: the last thread reads the prefix of the group.
        u64 which = group * team + threadIdx.x < part ? there + group * team + threadIdx.x : NONE;
        if (threadIdx.x == team - 1 && group > 0) which = groups + group - 1;
        look_back.add<1>(which, some);
        Whole whole = {some[0]};
        some[0] = reduce_row(whole, wholes).sum;
        base += some[0];
        some[0] += sum;
        if (threadIdx.x == 0 && part + 1 == (group + 1) * team) look_back.publish<1>(groups + group, some);
    }
#pragma unroll
    for (int k = 0; k < ROW_PACKS; ++k) {
        const u32 j = start + k * width * N;
        Total y[N];
        unpack<N>(y, packs[k]);
        y[0] += base + up_to[k];
#pragma unroll
        for (int w = 1; w < N; ++w) y[w] += y[w - 1];
        if (j < n) store<N>(to + (N > 1 ? j : j * params.out_stride), y);
    }
}

// With asynchronous copies, vectors wait in shared memory, ASYNC_PACKS per thread, so that more blocks are resident than registers would
// allow. Otherwise COLUMN_PACKS are in registers.
#if !defined(__AMDGCN__) && __CUDA_ARCH__ >= 800
#define QUEUES(N) (sizeof(T) * (N) == 16)
#else
#define QUEUES(N) false
#endif
template <int N, bool> struct Packs {
    static const int MOST = COLUMN_PACKS;
    Bundle<T, N> packs[COLUMN_PACKS];

    __device__ inline void load(const T *from, u32 n, u64 step) {
#pragma unroll
        for (int k = 0; k < COLUMN_PACKS; ++k) {
            packs[k].raw = {};
            if (k < n) packs[k].load(from + k * step);
        }
    }
    __device__ inline void get(Total (&y)[N], int k) { unpack<N>(y, packs[k]); }
};
template <int N> struct Packs<N, true> {
    static const int MOST = ASYNC_PACKS;
    uint4 *place;

    __device__ inline void load(const T *from, u32 n, u64 step) {
        extern __shared__ uint4 queue[];
        place = queue + threadIdx.y * blockDim.x + threadIdx.x;
#if !defined(__AMDGCN__)
        // Zero-filled if there is nothing to read.
        const u32 to = (u32)__cvta_generic_to_shared(place);
#pragma unroll
        for (int k = 0; k < ASYNC_PACKS; ++k) {
            const T *at = k < n ? from + k * step : from;
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to + k * (THREADS * 16)), "l"(at), "r"(k < n ? 16 : 0) : "memory");
        }
        asm volatile("cp.async.wait_all;" ::: "memory");
#endif
    }
    __device__ inline void get(Total (&y)[N], int k) {
        Bundle<T, N> pack;
        pack.load((const T *)(place + k * THREADS));
        unpack<N>(y, pack);
    }
};

// Threads in x have adjacent rows; those in y follow one another in the same row, each with vectors below one another. They are more than a
// group of parts has.
template <int N> __device__ inline void side(const T *x, U *out, const LookBack &look_back, const ScanParams &params) {
    typedef Packs<N, QUEUES(N)> Mine;
    __shared__ Total smem[2][THREADS / WAVE * ACROSS][N];
    const u64 columns = params.row_dims.n, panels = quotient(columns + blockDim.x - 1, blockDim.x);
    const u64 which = taken(look_back), part = quotient(which, panels);
    if (part >= params.parts) return;
    const u64 column = (which - part * panels) * blockDim.x + threadIdx.x, start = (part * blockDim.y + threadIdx.y) * Mine::MOST;
    const u64 rest = column < columns && start < params.n ? params.n - start : 0;
    const u32 n = rest < Mine::MOST ? rest : Mine::MOST;
    u64 at[2];
    place(params.row_dims, column < columns ? column : 0, at);
    U *to = out + at[1] + start * params.out_stride;
    Mine packs;
    packs.load(x + at[0] + start * params.in_stride, n, params.in_stride);
    Total base[N], sum[N] = {};
#pragma unroll
    for (int k = 0; k < Mine::MOST; ++k) {
        Total y[N];
        packs.get(y, k);
#pragma unroll
        for (int w = 0; w < N; ++w) sum[w] += y[w];
    }
    // Prefix over the threads of a warp, then over the previous warps.
    const int across = blockDim.x, thread = threadIdx.y * across + threadIdx.x, lane = thread % WAVE, warp = thread / WAVE;
    for (int apart = across; apart < WAVE; apart *= 2) {
#pragma unroll
        for (int w = 0; w < N; ++w) {
            const Total above = __shfl_up_sync(0xffffffffu, sum[w], apart, WAVE);
            if (lane >= apart) sum[w] += above;
        }
    }
#pragma unroll
    for (int w = 0; w < N; ++w) {
        if (lane + across >= WAVE) smem[0][warp * across + threadIdx.x][w] = sum[w];
        base[w] = __shfl_up_sync(0xffffffffu, sum[w], across, WAVE);
        if (lane < across) base[w] = 0;
        sum[w] = 0;
    }
    __syncthreads();
    // The first warp has no predecessor and computes the block's total, which is published.
    for (int d = 0; d < (warp > 0 ? warp : THREADS / WAVE); ++d) {
#pragma unroll
        for (int w = 0; w < N; ++w) sum[w] += smem[0][d * across + threadIdx.x][w];
    }
#pragma unroll
    for (int w = 0; w < N; ++w) base[w] += warp > 0 ? sum[w] : (Total)0;
    if (params.parts > 1) {
        const u64 group = part / GROUP, groups = params.parts * columns;
        Total some[N] = {};
        if (column < columns) {
            if (threadIdx.y == 0) look_back.publish<N>(part * columns + column, sum);
            const u64 before = group * GROUP + threadIdx.y;
            u64 wanted = threadIdx.y < GROUP && before < part ? before * columns + column : NONE;
            if (threadIdx.y == GROUP && group > 0) wanted = groups + (group - 1) * columns + column;
            look_back.add<N>(wanted, some);
        }
        for (int apart = across; apart < WAVE; apart *= 2) {
#pragma unroll
            for (int w = 0; w < N; ++w) some[w] += __shfl_xor_sync(0xffffffffu, some[w], apart, WAVE);
        }
#pragma unroll
        for (int w = 0; w < N; ++w) {
            if (lane < across) smem[1][warp * across + threadIdx.x][w] = some[w];
            some[w] = 0;
        }
        __syncthreads();
        // The parts of a group, and the prefix before it, by this many warps.
        for (int d = 0; d <= GROUP * across / WAVE; ++d) {
#pragma unroll
            for (int w = 0; w < N; ++w) some[w] += smem[1][d * across + threadIdx.x][w];
        }
#pragma unroll
        for (int w = 0; w < N; ++w) base[w] += some[w], some[w] += sum[w];
        if (column < columns && threadIdx.y == 0 && part + 1 == (group + 1) * GROUP) look_back.publish<N>(groups + group * columns + column, some);
    }
#pragma unroll
    for (int k = 0; k < Mine::MOST; ++k) {
        Total y[N];
        packs.get(y, k);
#pragma unroll
        for (int w = 0; w < N; ++w) base[w] += y[w];
        if (k < n) store<N>(to + k * params.out_stride, base);
    }
}

#define SCAN const T *x, U *out, u64 *words, ScanParams params
#define LOOK_BACK LookBack look_back = {words}
extern "C" __global__ void BOUNDS(sizeof(Total) > 4 ? 2 : 3) KERNEL_NAME(NAME, _rows)(SCAN) { LOOK_BACK; lines<WIDTH>(x, out, look_back, params); }
extern "C" __global__ void BOUNDS(sizeof(Total) > 4 ? 2 : 3) KERNEL_NAME(NAME, _rows_scalar)(SCAN) { LOOK_BACK; lines<1>(x, out, look_back, params); }
extern "C" __global__ void BOUNDS(QUEUES(WIDTH) ? 3 : 2) KERNEL_NAME(NAME, _columns)(SCAN) { LOOK_BACK; side<WIDTH>(x, out, look_back, params); }
extern "C" __global__ void BOUNDS(2) KERNEL_NAME(NAME, _columns_scalar)(SCAN) { LOOK_BACK; side<1>(x, out, look_back, params); }
