// Sums of all elements up to each, along an axis. T is the type of the elements, U that of the sums.
//
// Every element is read once: a block keeps a part of a line in registers, in `lines`, or parts of neighbouring lines, in `side`. Where a
// line has several parts, a block posts the sum of its own for those behind it, and waits for those before it. Parts are taken in order,
// from a counter: what a block waits for is at work already. Sums are added in the same order in every run.

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

// Sums for other blocks: of each part and, behind those, of all before each group. The counter of parts stands before the flags.
#define NONE (~0ull)
struct Posts {
    u32 *flags;
    Total *sums;

    template <int N> __device__ inline void post(u64 which, const Total (&sum)[N]) const {
#pragma unroll
        for (int k = 0; k < N; ++k) sums[which * N + k] = sum[k];
        u32 *flag = flags + 1 + which;
#if defined(__AMDGCN__)
        __hip_atomic_store(flag, 1u, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
#else
        asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(flag) : "memory");
#endif
    }
    __device__ inline bool posted(u64 which) const {
        u32 *flag = flags + 1 + which, posted;
#if defined(__AMDGCN__)
        posted = __hip_atomic_load(flag, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT);
        if (!posted) __builtin_amdgcn_s_sleep(1);
#else
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(posted) : "l"(flag) : "memory");
#endif
        return posted;
    }
    // Adds what other blocks posted, or will: all of these are waited for at once. Those that are not wanted are NONE.
    template <int N, int SOME> __device__ inline void add(const u64 (&which)[SOME], Total (&sum)[N]) const {
        bool all;
        do {
            all = true;
#pragma unroll
            for (int i = 0; i < SOME; ++i)
                if (which[i] != NONE && !posted(which[i])) all = false;
        } while (!all);
#pragma unroll
        for (int i = 0; i < SOME; ++i) {
            if (which[i] == NONE) continue;
#pragma unroll
            for (int k = 0; k < N; ++k) sum[k] += sums[which[i] * N + k];
        }
    }
};

// The number of a block's part, in all lines together.
__device__ inline u64 taken(const Posts &posts) {
    if (!posts.flags) return (u64)blockIdx.y * gridDim.x + blockIdx.x;
    __shared__ u32 number;
    if (threadIdx.x == 0 && threadIdx.y == 0) number = atomicAdd(posts.flags, 1u);
    __syncthreads();
    return number;
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
        u64 which[1] = {group * team + threadIdx.x < part ? there + group * team + threadIdx.x : NONE};
        if (threadIdx.x == team - 1 && group > 0) which[0] = groups + group - 1;
        posts.add<1, 1>(which, some);
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

// A thread has BELOW packs below one another; neighbours have neighbouring lines, and those of one threadIdx.x a part of the same.
template <int N> __device__ inline void side(const T *x, U *out, const Posts &posts, const Job &job) {
    __shared__ Total room[2][THREADS][N];
    const u64 columns = job.walk.n, panels = quotient(columns + blockDim.x - 1, blockDim.x);
    const u64 which = taken(posts), part = quotient(which, panels);
    if (part >= job.parts) return;
    const u64 column = (which - part * panels) * blockDim.x + threadIdx.x, start = (part * blockDim.y + threadIdx.y) * BELOW;
    const u64 rest = column < columns && start < job.n ? job.n - start : 0;
    const u32 n = rest < BELOW ? rest : BELOW;
    u64 at[2];
    place(job.walk, column < columns ? column : 0, at);
    const T *from = x + at[0] + start * job.step_in;
    U *to = out + at[1] + start * job.step_out;
    Bundle<T, N> packs[BELOW];
#pragma unroll
    for (int k = 0; k < BELOW; ++k)
        if (k < n) packs[k].load(from + k * job.step_in);
    Total base[N] = {}, sum[N] = {};
#pragma unroll
    for (int k = 0; k < BELOW; ++k) {
        Total y[N];
        unpack<N>(y, packs[k]);
#pragma unroll
        for (int w = 0; w < N; ++w) sum[w] += k < n ? y[w] : (Total)0;
    }
#pragma unroll
    for (int w = 0; w < N; ++w) room[0][threadIdx.y * blockDim.x + threadIdx.x][w] = sum[w], sum[w] = 0;
    __syncthreads();
    for (int d = 0; d < blockDim.y; ++d) {
#pragma unroll
        for (int w = 0; w < N; ++w) {
            if (d == threadIdx.y) base[w] = sum[w];
            sum[w] += room[0][d * blockDim.x + threadIdx.x][w];
        }
    }
    if (job.parts > 1) {
        const u64 group = part / GROUP;
        Total some[N] = {};
        if (column < columns) {
            if (threadIdx.y == 0) posts.post<N>(part * columns + column, sum);
            u64 wanted[3] = {NONE, NONE, NONE};
            if (threadIdx.y == 0 && group > 0) wanted[2] = (job.parts + group - 1) * columns + column;
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const u64 p = group * GROUP + threadIdx.y + i * blockDim.y;
                if (p < part && threadIdx.y + i * blockDim.y < GROUP) wanted[i] = p * columns + column;
            }
            posts.add<N, 3>(wanted, some);
        }
#pragma unroll
        for (int w = 0; w < N; ++w) room[1][threadIdx.y * blockDim.x + threadIdx.x][w] = some[w], some[w] = 0;
        __syncthreads();
        for (int d = 0; d < blockDim.y; ++d) {
#pragma unroll
            for (int w = 0; w < N; ++w) some[w] += room[1][d * blockDim.x + threadIdx.x][w];
        }
#pragma unroll
        for (int w = 0; w < N; ++w) base[w] += some[w], some[w] += sum[w];
        if (column < columns && threadIdx.y == 0 && part + 1 == (group + 1) * GROUP) posts.post<N>((job.parts + group) * columns + column, some);
    }
#pragma unroll
    for (int k = 0; k < BELOW; ++k) {
        Total y[N];
        unpack<N>(y, packs[k]);
#pragma unroll
        for (int w = 0; w < N; ++w) base[w] += y[w];
        if (k < n) store<N>(to + k * job.step_out, base);
    }
}

#define SCAN const T *x, U *out, u32 *flags, Total *sums, Job job
#define POSTS Posts posts = {flags, sums}
extern "C" __global__ void BOUNDS(sizeof(Total) > 4 ? 2 : 3) SYMBOL(NAME, _lines)(SCAN) { POSTS; lines<WIDTH>(x, out, posts, job); }
extern "C" __global__ void BOUNDS(sizeof(Total) > 4 ? 2 : 3) SYMBOL(NAME, _lines_single)(SCAN) { POSTS; lines<1>(x, out, posts, job); }
extern "C" __global__ void BOUNDS(2) SYMBOL(NAME, _side)(SCAN) { POSTS; side<WIDTH>(x, out, posts, job); }
extern "C" __global__ void BOUNDS(2) SYMBOL(NAME, _side_single)(SCAN) { POSTS; side<1>(x, out, posts, job); }
