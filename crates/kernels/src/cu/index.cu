// Elements by their indices: T is the element (a whole number of its size where it is only moved), U the index.
//
// An index that is none (negative, or beyond the dimension) reads 0 and writes nothing.

// The dimension that is indexed: its places, and the steps between them.
struct Axis {
    u64 places, step;
    // Of what is scattered: its length, its elements' steps, and those of the sorted indices.
    u64 length, from_step, index_step;
};

template <class Index> __device__ inline void locate(Index i, const Dims &dims, Index *at, int operands) {
    Index rest = i;
#pragma unroll 1
    for (int d = 0; d < dims.rank; ++d) {
        Index place = rest;
        if (d + 1 < dims.rank) {
            const Index outer = divide<Index>(rest, dims, d);
            place = rest - outer * (Index)dims.shape[d];
            rest = outer;
        }
#pragma unroll
        for (int k = 0; k < operands; ++k) at[k] += place * (Index)dims.strides[k][d];
    }
}

#if defined(OP_gather)

// Operands: the result, the indices, the input without its indexed dimension.
template <class Index, int WIDTH>
__device__ inline void gather(T *out, const U *indices, const T *x, const Axis &axis, const Dims &dims) {
    const Index n = (Index)dims.n, tile = (Index)blockDim.x * UNROLL;
    for (Index first = blockIdx.x * tile; first < n; first += gridDim.x * tile) {
        Index to[UNROLL];
        u64 from[UNROLL], place[UNROLL];
#pragma unroll
        for (int k = 0; k < UNROLL; ++k) {
            const Index i = first + k * blockDim.x + threadIdx.x;
            if (i >= n) continue;
            Index at[3] = {0, 0, 0};
            locate<Index>(i, dims, at, 3);
            to[k] = at[0];
            place[k] = (u64)indices[at[1]];
            from[k] = at[2];
        }
        Pack<T, WIDTH> packs[UNROLL];
#pragma unroll
        for (int k = 0; k < UNROLL; ++k) {
            const Index i = first + k * blockDim.x + threadIdx.x;
            if (i >= n) continue;
            if (place[k] < axis.places) {
                packs[k] = get<T, WIDTH>(x + from[k] + place[k] * axis.step);
            } else {
#pragma unroll
                for (int e = 0; e < WIDTH; ++e) packs[k].at[e] = 0;
            }
        }
#pragma unroll
        for (int k = 0; k < UNROLL; ++k) {
            const Index i = first + k * blockDim.x + threadIdx.x;
            if (i < n) put<T, WIDTH>(out + to[k], packs[k]);
        }
    }
}

// An index for each element, both in packs.
template <int WIDTH> __device__ inline void gather_wide(T *out, const U *indices, const T *x, const Axis &axis, const Dims &dims) {
    const u32 n = (u32)dims.n, step = gridDim.x * blockDim.x;
    // The step of a single element, not of a pack.
    const u64 beside = dims.strides[2][0] / WIDTH;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        u32 at[3] = {0, 0, 0};
        locate<u32>(i, dims, at, 3);
        const Pack<U, WIDTH> places = get<U, WIDTH>(indices + at[1]);
        Pack<T, WIDTH> pack;
#pragma unroll
        for (int e = 0; e < WIDTH; ++e) {
            const u64 place = (u64)places.at[e];
            pack.at[e] = place < axis.places ? x[at[2] + e * beside + place * axis.step] : (T)0;
        }
        put<T, WIDTH>(out + at[0], pack);
    }
}

// The same where a row holds all places: a block for each, which keeps it in shared memory, where any order is quick.
__device__ inline void gather_rows(T *out, const U *indices, const T *x, const Axis &axis, const Dims &dims) {
    constexpr int WIDTH = 16 / most(sizeof(T), sizeof(U));
    extern __shared__ uint4 row[];
    const u32 packs = (u32)dims.shape[0], rows = (u32)dims.n / packs;
    for (u32 r = blockIdx.x; r < rows; r += gridDim.x) {
        u32 at[3] = {0, 0, 0};
        locate<u32>(r * packs, dims, at, 3);
        const uint4 *const from = (const uint4 *)(x + at[2]);
        for (u32 i = threadIdx.x; i < axis.places * sizeof(T) / 16; i += blockDim.x) row[i] = from[i];
        __syncthreads();
#pragma unroll 4
        for (u32 i = threadIdx.x; i < packs; i += blockDim.x) {
            const Pack<U, WIDTH> places = get<U, WIDTH>(indices + at[1] + i * WIDTH);
            Pack<T, WIDTH> pack;
#pragma unroll
            for (int e = 0; e < WIDTH; ++e) {
                const u64 place = (u64)places.at[e];
                pack.at[e] = place < axis.places ? ((const T *)row)[place] : (T)0;
            }
            put<T, WIDTH>(out + at[0] + i * WIDTH, pack);
        }
        __syncthreads();
    }
}

// The result lies apart from the others: what comes next may be loaded before this is stored.
#define GATHER T *out, const U *__restrict__ indices, const T *__restrict__ x, Axis axis, Dims dims
extern "C" __global__ void SYMBOL(NAME, _rows)(GATHER) { gather_rows(out, indices, x, axis, dims); }
extern "C" __global__ void SYMBOL(NAME, _packs)(GATHER) { gather<u32, 16 / sizeof(T)>(out, indices, x, axis, dims); }
extern "C" __global__ void SYMBOL(NAME, _wide)(GATHER) { gather_wide<16 / most(sizeof(T), sizeof(U))>(out, indices, x, axis, dims); }
extern "C" __global__ void SYMBOL(NAME, _single)(GATHER) { gather<u32, 1>(out, indices, x, axis, dims); }
extern "C" __global__ void SYMBOL(NAME, _single64)(GATHER) { gather<u64, 1>(out, indices, x, axis, dims); }

#else

#if defined(OP_scatter_add)
template <class M> __device__ inline M add(M x, M y) { return x + y; }
template <> __device__ inline i32 add(i32 x, i32 y) { return (i32)((u32)x + (u32)y); }
template <> __device__ inline i64 add(i64 x, i64 y) { return (i64)((u64)x + (u64)y); }
#endif

// Operands: what is scattered, the sorted indices, the result without its indexed dimension, and the place among the sorted. Equal indices stand in the order in which they were given: the last is the one that stays, or the first adds up all.
template <class Index, int WIDTH>
__device__ inline void scatter(T *out, const U *sorted, const u32 *order, const T *x, const Axis &axis, const Dims &dims) {
    const Index n = (Index)dims.n, step = (Index)gridDim.x * blockDim.x;
    for (Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        Index at[4] = {0, 0, 0, 0};
        locate<Index>(i, dims, at, 4);
        u64 p = at[3], s = at[1];
        // As if the place among the sorted were the one it was given at.
        const T *const from = x + at[0] - p * axis.from_step;
        const U id = sorted[s];
        const u64 place = (u64)id;
        if (place >= axis.places) continue;
        T *const to = out + at[2] + place * axis.step;
#if defined(OP_scatter)
        if (p + 1 < axis.length && sorted[s + axis.index_step] == id) continue;
        put<T, WIDTH>(to, get<T, WIDTH>(from + order[s] * axis.from_step));
#else
        if (p > 0 && sorted[s - axis.index_step] == id) continue;
        typedef Traits<T>::Math Math;
        Math sums[WIDTH];
        Pack<T, WIDTH> pack = get<T, WIDTH>(to);
#pragma unroll
        for (int e = 0; e < WIDTH; ++e) sums[e] = widen(pack.at[e]);
        for (;;) {
            pack = get<T, WIDTH>(from + order[s] * axis.from_step);
#pragma unroll
            for (int e = 0; e < WIDTH; ++e) sums[e] = add(sums[e], widen(pack.at[e]));
            if (++p == axis.length) break;
            s += axis.index_step;
            if (sorted[s] != id) break;
        }
#pragma unroll
        for (int e = 0; e < WIDTH; ++e) pack.at[e] = Narrow<T>::from(sums[e]);
        put<T, WIDTH>(to, pack);
#endif
    }
}

#define SCATTER T *out, const U *sorted, const u32 *order, const T *x, Axis axis, Dims dims
extern "C" __global__ void SYMBOL(NAME, _packs)(SCATTER) { scatter<u32, 16 / sizeof(T)>(out, sorted, order, x, axis, dims); }
extern "C" __global__ void SYMBOL(NAME, _single)(SCATTER) { scatter<u32, 1>(out, sorted, order, x, axis, dims); }
extern "C" __global__ void SYMBOL(NAME, _single64)(SCATTER) { scatter<u64, 1>(out, sorted, order, x, axis, dims); }

#endif
