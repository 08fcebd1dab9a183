// Sums of all elements up to each, along an axis. T is the type of the elements, U that of the sums.
//
// Every element is read once: a block keeps a part of a line in registers, in `lines`, or parts of neighbouring lines, in `side`. Where a
// line has several parts, a block posts the sum of its own for those behind it, and waits for those before it. Parts are taken in order:
// what a block waits for is at work already. Sums are added in the same order in every run.

typedef Traits<T>::Math Math;
// Elements of a pack: side by side in a line, or one of each of neighbouring lines. More than 8 sums would not fit the registers.
#define WIDEST (sizeof(T) > sizeof(U) ? sizeof(T) : sizeof(U))
#define WIDTH (16 / (int)(WIDEST > 2 ? WIDEST : 2))
// Packs of a thread: along a line, and below one another.
#define MOST_WARPS 32
// Threads of a block at most; and registers for so many blocks at once.
#define THREADS 256
#if defined(__AMDGCN__)
#define BOUNDS(BLOCKS) __launch_bounds__(THREADS)
#else
#define BOUNDS(BLOCKS) __launch_bounds__(THREADS, BLOCKS)
#endif
// Parts of neighbouring lines whose sums are posted one by one; then one is of all before.
#define GROUP 16

template <bool INTEGER, int BYTES> struct Running { typedef Math Type; };
template <int BYTES> struct Running<true, BYTES> { typedef u32 Type; };
template <> struct Running<true, 8> { typedef u64 Type; };
typedef Running<Traits<T>::INTEGER, sizeof(U)>::Type Total;

struct Job {
    // Elements of a line, and parts.
    u64 n, parts;
    // Between elements of a line.
    u64 step_in, step_out;
    // Over lines: the strides of the input and the result. In `side`, the innermost dimension is of packs.
    Walk walk;
};

// Sums for other blocks: of each part and, behind those, of all before each group. The counter of parts stands before them. A word of 32
// bits comes with a flag, in one store: nothing has to be stored before something else, which would mean to wait for all that a block
// has written.
#define NONE (~0ull)
struct Posts {
    u64 *words;
    static const int EACH = sizeof(Total) / 4;
    union Word {
        Total sum;
        u32 bits[EACH];
        __device__ Word() {}
    };

    template <int N> __device__ inline u64 *at(u64 which) const { return words + 2 + which * (N * EACH); }
    template <int N> __device__ inline void post(u64 which, const Total (&sum)[N]) const {
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
    // Adds what another block posted, or will.
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

// The number of a block's part, in all lines together. A block must not wait for one that has not begun: NVIDIA's begin in the order of
// their numbers, on which its own scans rely too; of others a counter tells the order. To ask it takes as long as to look back.
__device__ inline u64 taken(const Posts &posts) {
#if defined(__AMDGCN__)
    if (posts.words) {
        __shared__ u32 number;
        if (threadIdx.x == 0 && threadIdx.y == 0) number = atomicAdd((u32 *)posts.words, 1u);
        __syncthreads();
        return number;
    }
#endif
    return (u64)blockIdx.y * gridDim.x + blockIdx.x;
}

// The elements of a pack as they are added. Each time as if they were new: else they would be kept, in twice the registers.
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

// Merged by over_team().
struct Whole {
    Total sum;
    __device__ inline void merge(const Whole &other) { sum += other.sum; }
};

// A team for a part of a line. Each of its warps takes packs side by side, ALONG times.
template <int N> __device__ inline void lines(const T *x, U *out, const Posts &posts, const Job &job) {
    __shared__ Total room[MOST_WARPS];
    __shared__ Whole wholes[MOST_WARPS];
    const int team = blockDim.x, width = team < warpSize ? team : warpSize, lane = threadIdx.x % width, warps = team / width;
    const u64 all = job.walk.n * job.parts;
    const u64 first = taken(posts) * blockDim.y, which = first + threadIdx.y;
    if (first >= all) return;
    // A team too many at the end has a line of nothing.
    const u64 line = quotient(which < all ? which : 0, job.parts), part = (which < all ? which : 0) - line * job.parts;
    const u64 begin = part * team * (ALONG * N), rest = which < all ? job.n - begin : 0;
    const u32 n = rest < THREADS * ALONG * N ? rest : THREADS * ALONG * N, start = ((threadIdx.x - lane) * ALONG + lane) * N;
    u64 at[2];
    place(job.walk, line, at);
    const T *from = x + at[0] + begin * job.step_in;
    U *to = out + at[1] + begin * job.step_out;
    Bundle<T, N> packs[ALONG];
#pragma unroll
    for (int k = 0; k < ALONG; ++k) {
        const u32 j = start + k * width * N;
        if (j < n) packs[k].load(from + (N > 1 ? j : j * job.step_in));
    }
    // The sum up to each pack within the warp's row of them; steps of all rows together, not to wait for each.
    Total up_to[ALONG], sum = 0;
#pragma unroll
    for (int k = 0; k < ALONG; ++k) {
        Total y[N];
        unpack<N>(y, packs[k]);
        up_to[k] = start + k * width * N < n ? in_pairs<Sum, N>(y) : (Total)0;
    }
    for (int apart = 1; apart < width; apart *= 2) {
#pragma unroll
        for (int k = 0; k < ALONG; ++k) {
            const Total other = __shfl_up_sync(0xffffffffu, up_to[k], apart, width);
            if (lane >= apart) up_to[k] += other;
        }
    }
    // Now before it, the rows above too. Floats would lose digits if a pack's own were taken off again.
#pragma unroll
    for (int k = 0; k < ALONG; ++k) {
        const Total row = __shfl_sync(0xffffffffu, up_to[k], width - 1, width), earlier = __shfl_up_sync(0xffffffffu, up_to[k], 1, width);
        up_to[k] = lane > 0 ? sum + earlier : sum;
        sum += row;
    }
    Total base = 0;
    if (warps > 1) {
        Total *const mine = room + threadIdx.y * warps;
        if (lane == 0) mine[threadIdx.x / width] = sum;
        __syncthreads();
        sum = 0;
        for (int w = 0; w < warps; ++w) {
            if (w == threadIdx.x / width) base = sum;
            sum += mine[w];
        }
    }
    if (job.parts > 1) {
        const u64 group = quotient(part, team), there = line * (job.parts + quotient(job.parts, team)), groups = there + job.parts;
        Total some[1] = {sum};
        if (threadIdx.x == 0) posts.post<1>(there + part, some);
        some[0] = 0;
        // A group has fewer parts before this one than the team has threads: the last thread is left for all before the group.
        u64 which = group * team + threadIdx.x < part ? there + group * team + threadIdx.x : NONE;
        if (threadIdx.x == team - 1 && group > 0) which = groups + group - 1;
        posts.add<1>(which, some);
        Whole whole = {some[0]};
        some[0] = over_team(whole, wholes).sum;
        base += some[0];
        some[0] += sum;
        if (threadIdx.x == 0 && part + 1 == (group + 1) * team) posts.post<1>(groups + group, some);
    }
#pragma unroll
    for (int k = 0; k < ALONG; ++k) {
        const u32 j = start + k * width * N;
        Total y[N];
        unpack<N>(y, packs[k]);
        y[0] += base + up_to[k];
#pragma unroll
        for (int w = 1; w < N; ++w) y[w] += y[w - 1];
        if (j < n) store<N>(to + (N > 1 ? j : j * job.step_out), y);
    }
}

// Where copies go on by themselves, packs wait in shared memory, QUEUED of a thread: more blocks than their registers would allow are at
// work. Elsewhere they are in registers, BELOW of them.
#if !defined(__AMDGCN__) && __CUDA_ARCH__ >= 800
#define QUEUES(N) (sizeof(T) * (N) == 16)
#else
#define QUEUES(N) false
#endif
template <int N, bool> struct Packs {
    static const int MOST = BELOW;
    Bundle<T, N> packs[BELOW];

    __device__ inline void load(const T *from, u32 n, u64 step) {
#pragma unroll
        for (int k = 0; k < BELOW; ++k) {
            packs[k].raw = {};
            if (k < n) packs[k].load(from + k * step);
        }
    }
    __device__ inline void get(Total (&y)[N], int k) { unpack<N>(y, packs[k]); }
};
template <int N> struct Packs<N, true> {
    static const int MOST = QUEUED;
    uint4 *place;

    __device__ inline void load(const T *from, u32 n, u64 step) {
        extern __shared__ uint4 queue[];
        place = queue + threadIdx.y * blockDim.x + threadIdx.x;
#if !defined(__AMDGCN__)
        // Where there is nothing to read, zeros are put.
        const u32 to = (u32)__cvta_generic_to_shared(place);
#pragma unroll
        for (int k = 0; k < QUEUED; ++k) {
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

// Threads in x have neighbouring lines; those in y follow one another in the same, each with packs below one another. They are more than a
// group of parts has.
template <int N> __device__ inline void side(const T *x, U *out, const Posts &posts, const Job &job) {
    typedef Packs<N, QUEUES(N)> Mine;
    __shared__ Total room[2][THREADS / WAVE * ACROSS][N];
    const u64 columns = job.walk.n, panels = quotient(columns + blockDim.x - 1, blockDim.x);
    const u64 which = taken(posts), part = quotient(which, panels);
    if (part >= job.parts) return;
    const u64 column = (which - part * panels) * blockDim.x + threadIdx.x, start = (part * blockDim.y + threadIdx.y) * Mine::MOST;
    const u64 rest = column < columns && start < job.n ? job.n - start : 0;
    const u32 n = rest < Mine::MOST ? rest : Mine::MOST;
    u64 at[2];
    place(job.walk, column < columns ? column : 0, at);
    U *to = out + at[1] + start * job.step_out;
    Mine packs;
    packs.load(x + at[0] + start * job.step_in, n, job.step_in);
    Total base[N], sum[N] = {};
#pragma unroll
    for (int k = 0; k < Mine::MOST; ++k) {
        Total y[N];
        packs.get(y, k);
#pragma unroll
        for (int w = 0; w < N; ++w) sum[w] += y[w];
    }
    // Up to each thread of a warp, then of the warps before.
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
        if (lane + across >= WAVE) room[0][warp * across + threadIdx.x][w] = sum[w];
        base[w] = __shfl_up_sync(0xffffffffu, sum[w], across, WAVE);
        if (lane < across) base[w] = 0;
        sum[w] = 0;
    }
    __syncthreads();
    // The first warp, before which there is none, gets the sum of all for those behind this block.
    for (int d = 0; d < (warp > 0 ? warp : THREADS / WAVE); ++d) {
#pragma unroll
        for (int w = 0; w < N; ++w) sum[w] += room[0][d * across + threadIdx.x][w];
    }
#pragma unroll
    for (int w = 0; w < N; ++w) base[w] += warp > 0 ? sum[w] : (Total)0;
    if (job.parts > 1) {
        const u64 group = part / GROUP, groups = job.parts * columns;
        Total some[N] = {};
        if (column < columns) {
            if (threadIdx.y == 0) posts.post<N>(part * columns + column, sum);
            const u64 before = group * GROUP + threadIdx.y;
            u64 wanted = threadIdx.y < GROUP && before < part ? before * columns + column : NONE;
            if (threadIdx.y == GROUP && group > 0) wanted = groups + (group - 1) * columns + column;
            posts.add<N>(wanted, some);
        }
        for (int apart = across; apart < WAVE; apart *= 2) {
#pragma unroll
            for (int w = 0; w < N; ++w) some[w] += __shfl_xor_sync(0xffffffffu, some[w], apart, WAVE);
        }
#pragma unroll
        for (int w = 0; w < N; ++w) {
            if (lane < across) room[1][warp * across + threadIdx.x][w] = some[w];
            some[w] = 0;
        }
        __syncthreads();
        // Those of a group, and the one before: in so many warps.
        for (int d = 0; d <= GROUP * across / WAVE; ++d) {
#pragma unroll
            for (int w = 0; w < N; ++w) some[w] += room[1][d * across + threadIdx.x][w];
        }
#pragma unroll
        for (int w = 0; w < N; ++w) base[w] += some[w], some[w] += sum[w];
        if (column < columns && threadIdx.y == 0 && part + 1 == (group + 1) * GROUP) posts.post<N>(groups + group * columns + column, some);
    }
#pragma unroll
    for (int k = 0; k < Mine::MOST; ++k) {
        Total y[N];
        packs.get(y, k);
#pragma unroll
        for (int w = 0; w < N; ++w) base[w] += y[w];
        if (k < n) store<N>(to + k * job.step_out, base);
    }
}

#define SCAN const T *x, U *out, u64 *words, Job job
#define POSTS Posts posts = {words}
extern "C" __global__ void BOUNDS(sizeof(Total) > 4 ? 2 : 3) SYMBOL(NAME, _lines)(SCAN) { POSTS; lines<WIDTH>(x, out, posts, job); }
extern "C" __global__ void BOUNDS(sizeof(Total) > 4 ? 2 : 3) SYMBOL(NAME, _lines_single)(SCAN) { POSTS; lines<1>(x, out, posts, job); }
extern "C" __global__ void BOUNDS(QUEUES(WIDTH) ? 3 : 2) SYMBOL(NAME, _side)(SCAN) { POSTS; side<WIDTH>(x, out, posts, job); }
extern "C" __global__ void BOUNDS(2) SYMBOL(NAME, _side_single)(SCAN) { POSTS; side<1>(x, out, posts, job); }
