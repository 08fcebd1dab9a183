// Sums of all elements up to each, along an axis. T is the type of the elements, U that of the sums.
//
// `lines` has a team for each line, whose threads take TILE elements side by side and then look at one another's sums; `side` has a
// thread for each of neighbouring lines. Lines too long for one go are cut into parts: first only the parts' sums are made, `carry`
// turns them into what comes before each part, and a second launch adds that.

typedef Traits<T>::Math Math;
#define WIDTH (16 / (int)sizeof(T))
// Elements of a thread at a time.
#define TILE 16
#define MOST_WARPS 32

template <bool INTEGER, int BYTES> struct Running { typedef Math Type; };
template <int BYTES> struct Running<true, BYTES> { typedef u32 Type; };
template <> struct Running<true, 8> { typedef u64 Type; };
typedef Running<Traits<T>::INTEGER, sizeof(U)>::Type Total;

template <class R, class V> __device__ inline R stored(V value) {
    if constexpr (Traits<R>::INTEGER) return (R)value;
    else return convert<R>(value);
}

struct Job {
    // Elements of a line, of a part of it, and parts.
    u64 n, part, parts;
    // Between elements of a line.
    u64 step_in, step_out;
    // Whether results are wanted, or the sums of the parts.
    u64 results;
    // Over lines: the strides of the input and the result.
    Walk walk;
};

// The sum of what the threads before have, and that of all.
__device__ inline Total before(Total mine, Total &all, Total *room) {
    const int lane = threadIdx.x % warpSize, warp = threadIdx.x / warpSize, warps = blockDim.x / warpSize;
    Total sum = mine;
    for (int apart = 1; apart < warpSize; apart *= 2) {
        const Total other = __shfl_up_sync(0xffffffffu, sum, apart);
        if (lane >= apart) sum += other;
    }
    // The sum of those before, not less one's own: floats would lose digits.
    Total earlier = __shfl_up_sync(0xffffffffu, sum, 1);
    if (lane == 0) earlier = 0;
    if (lane == warpSize - 1) room[warp] = sum;
    __syncthreads();
    Total others = 0;
    all = 0;
    for (int w = 0; w < warps; ++w) {
        if (w == warp) others = all;
        all += room[w];
    }
    __syncthreads();
    return others + earlier;
}

// Sums from `first` on of a line of `n`; floats in packs, where they fit.
__device__ inline void put_all(U *to, u64 first, u64 n, u64 step, Total base, const Total (&sums)[TILE]) {
    constexpr int WIDE = 16 / sizeof(U);
    if constexpr (!Traits<U>::INTEGER && sizeof(U) > 1) {
        if (step == 1 && first + TILE <= n && (u64)(to + first) % 16 == 0) {
#pragma unroll
            for (int k = 0; k < TILE; k += WIDE) {
                Bundle<U, WIDE> bundle;
                typename Traits<U>::Math some[WIDE];
#pragma unroll
                for (int w = 0; w < WIDE; ++w) some[w] = base + sums[k + w];
                bundle.pack(some);
                bundle.store(to + first + k);
            }
            return;
        }
    }
#pragma unroll
    for (int k = 0; k < TILE; ++k) if (first + k < n) to[(first + k) * step] = stored<U>(base + sums[k]);
}

// A block for a part of a line.
extern "C" __global__ void SYMBOL(NAME, _lines)(const T *x, U *out, Total *parts, Job job) {
    __shared__ Total room[MOST_WARPS];
    for (u64 which = blockIdx.x; which < job.walk.n * job.parts; which += gridDim.x) {
        const u64 line = quotient(which, job.parts), start = (which - line * job.parts) * job.part;
        const u64 n = job.part < job.n - start ? job.part : job.n - start;
        u64 at[2];
        place(job.walk, line, at);
        const T *from = x + at[0] + start * job.step_in;
        U *to = out + at[1] + start * job.step_out;
        const bool packs = job.step_in == 1 && (u64)from % 16 == 0;
        Total carried = job.results && parts ? parts[which] : (Total)0;
        for (u64 tile = 0; tile < n; tile += (u64)blockDim.x * TILE) {
            const u64 first = tile + (u64)threadIdx.x * TILE;
            Math y[TILE];
            if (packs && first + TILE <= n) {
                Bundle<T, WIDTH> bundles[TILE / WIDTH];
#pragma unroll
                for (int k = 0; k < TILE / WIDTH; ++k) bundles[k].load(from + first + k * WIDTH);
#pragma unroll
                for (int k = 0; k < TILE / WIDTH; ++k) {
                    Math some[WIDTH];
                    bundles[k].unpack(some);
#pragma unroll
                    for (int w = 0; w < WIDTH; ++w) y[k * WIDTH + w] = some[w];
                }
            } else {
#pragma unroll
                for (int k = 0; k < TILE; ++k) y[k] = first + k < n ? widen(from[(first + k) * job.step_in]) : (Math)0;
            }
            Total sums[TILE];
#pragma unroll
            for (int k = 0; k < TILE; ++k) sums[k] = k > 0 ? sums[k - 1] + (Total)y[k] : (Total)y[k];
            Total all, base = carried + before(sums[TILE - 1], all, room);
            carried += all;
            if (job.results) put_all(to, first, n, job.step_out, base, sums);
        }
        if (!job.results && threadIdx.x == 0) parts[which] = carried;
    }
}

// A thread for a part of a line; neighbours have neighbouring lines.
extern "C" __global__ void SYMBOL(NAME, _side)(const T *x, U *out, Total *parts, Job job) {
    const u64 line = (u64)blockIdx.x * blockDim.x + threadIdx.x, start = blockIdx.y * job.part;
    if (line >= job.walk.n) return;
    const u64 n = job.part < job.n - start ? job.part : job.n - start, which = line * job.parts + blockIdx.y;
    u64 at[2];
    place(job.walk, line, at);
    x += at[0] + start * job.step_in;
    out += at[1] + start * job.step_out;
    Total sum = job.results && parts ? parts[which] : (Total)0;
#pragma unroll 4
    for (u64 i = 0; i < n; ++i) {
        sum += (Total)widen(x[i * job.step_in]);
        if (job.results) out[i * job.step_out] = stored<U>(sum);
    }
    if (!job.results) parts[which] = sum;
}

// What comes before each part of a line: a block for each.
extern "C" __global__ void SYMBOL(NAME, _carry)(Total *parts, Job job) {
    __shared__ Total room[MOST_WARPS];
    for (u64 line = blockIdx.x; line < job.walk.n; line += gridDim.x) {
        Total *mine = parts + line * job.parts, carried = 0;
        for (u64 tile = 0; tile < job.parts; tile += blockDim.x) {
            const u64 i = tile + threadIdx.x;
            const Total here = i < job.parts ? mine[i] : (Total)0;
            Total all;
            const Total earlier = before(here, all, room);
            if (i < job.parts) mine[i] = carried + earlier;
            carried += all;
        }
    }
}
