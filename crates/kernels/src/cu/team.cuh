// Threads that work on one row together, and where rows lie.
//
// A team is the threads of a block with the same threadIdx.y: blockDim.x of them, a power of two. It lies within a warp, or is the
// whole block. Blocks have whole warps, all of whose lanes come to every exchange.

// Dimensions, the innermost first, with the strides of up to three operands.
struct Walk {
    u64 n;
    u32 rank, padding;
    u64 shape[MOST_DIMS];
    u64 strides[3][MOST_DIMS];
};

__device__ inline u64 quotient(u64 x, u64 by) { return (x | by) >> 32 ? x / by : (u32)x / (u32)by; }

// Where element `i` lies in each operand.
template <int OPERANDS> __device__ inline void place(const Walk &walk, u64 i, u64 (&at)[OPERANDS]) {
#pragma unroll
    for (int k = 0; k < OPERANDS; ++k) at[k] = 0;
#pragma unroll 1
    for (int d = 0; d < walk.rank; ++d) {
        u64 here = i;
        if (d + 1 < walk.rank) {
            const u64 outer = quotient(i, walk.shape[d]);
            here = i - outer * walk.shape[d];
            i = outer;
        }
#pragma unroll
        for (int k = 0; k < OPERANDS; ++k) at[k] += here * walk.strides[k][d];
    }
}

// Elements from `p` to the next address that a pack may have.
template <class T> __device__ inline u32 before_aligned(const T *p) { return (u32)(0 - (u64)p) % 16 / sizeof(T); }

// The value of another lane; it consists of words.
template <class S> __device__ inline S across(S value, int mask, int width) {
    union Words {
        S value;
        u32 words[sizeof(S) / 4];
        __device__ Words() {}
    } words;
    words.value = value;
#pragma unroll
    for (int k = 0; k < sizeof(S) / 4; ++k) words.words[k] = __shfl_xor_sync(0xffffffffu, words.words[k], mask, width);
    return words.value;
}

// What all threads of a team have, merged: every thread gets it. `room` is shared and of a value for each warp; it may be used again
// after the next barrier.
template <class S> __device__ inline S over_team(S mine, S *room) {
    const int width = blockDim.x < warpSize ? blockDim.x : warpSize, warps = blockDim.x / warpSize;
    for (int mask = width / 2; mask > 0; mask /= 2) mine.merge(across(mine, mask, width));
    if (warps > 1) {
        const int lane = threadIdx.x % warpSize;
        if (lane == 0) room[threadIdx.x / warpSize] = mine;
        __syncthreads();
        mine = room[lane % warps];
        for (int mask = warps / 2; mask > 0; mask /= 2) mine.merge(across(mine, mask, warpSize));
    }
    return mine;
}

// The larger, or NaN; and the smaller.
template <class M> __device__ inline M larger(M a, M b) { return a > b || a != a ? a : b; }
template <class M> __device__ inline M smaller(M a, M b) { return a < b || a != a ? a : b; }
#if !defined(__AMDGCN__) && __CUDA_ARCH__ >= 800
template <> __device__ inline f32 larger(f32 a, f32 b) {
    f32 c;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
    return c;
}
template <> __device__ inline f32 smaller(f32 a, f32 b) {
    f32 c;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
    return c;
}
#endif

// Values combined in pairs, then pairs of them: as exact as a sum in floats can be, and without a long chain.
template <class F, int N, class M> __device__ inline M in_pairs(const M *x) {
    if constexpr (N == 1) return x[0];
    else return F::of(in_pairs<F, N / 2>(x), in_pairs<F, N - N / 2>(x + N / 2));
}
struct Sum {
    template <class M> static __device__ inline M of(M a, M b) { return a + b; }
};
struct Product {
    template <class M> static __device__ inline M of(M a, M b) { return a * b; }
};
struct Larger {
    template <class M> static __device__ inline M of(M a, M b) { return larger(a, b); }
};
struct Smaller {
    template <class M> static __device__ inline M of(M a, M b) { return smaller(a, b); }
};

// Count, mean and sum of squared distances from it. Some values at a time are looked at twice, then merged: no digits are lost to a
// large mean, as they are in the sum of the squares.
template <class M> struct Moments {
    M n, mean, squares;

    __device__ inline void clear() { n = mean = squares = 0; }
    template <int N> __device__ inline void add(const M (&x)[N]) {
        Moments some;
        some.n = N;
        some.mean = N == 1 ? x[0] : in_pairs<Sum, N>(x) * ((M)1 / N);
        M far[N];
#pragma unroll
        for (int k = 0; k < N; ++k) far[k] = (x[k] - some.mean) * (x[k] - some.mean);
        some.squares = N == 1 ? 0 : in_pairs<Sum, N>(far);
        merge(some);
    }
    __device__ inline void merge(const Moments &other) {
        const M both = n + other.n, share = both > 0 ? other.n / both : 0, apart = other.mean - mean;
        // None of one side: what the other has, to the bit.
        mean = share == 1 ? other.mean : mean + apart * share;
        squares += other.squares + (share == 1 ? 0 : apart * apart * share * n);
        n = both;
    }
};
