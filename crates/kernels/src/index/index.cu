// Gather and scatter. T is the element (an unsigned integer of its size where it is only copied), U the index.
//
// Out-of-range indices read 0 and write nothing.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME gather_u32_u32
#define OP_gather
#define T u32
#define U u32
#define UNROLL 2
#endif

#include "common/dims.cuh"
#include "common/pack.cuh"

// The indexed dimension: its size and stride.
struct Axis {
    u64 size, stride;
    // For scatter: the number of indices, and the strides of the input and of the sorted indices.
    u64 length, from_stride, index_stride;
};

#if defined(OP_gather)

// Operands: the result, the indices, the input without its indexed dimension.
template <class Index, int WIDTH>
__device__ inline void gather(T *out, const U *indices, const T *x, const Axis &axis, const Dims &dims) {
    const Index n = (Index)dims.n, tile = (Index)blockDim.x * UNROLL;
    for (Index first = blockIdx.x * tile; first < n; first += gridDim.x * tile) {
        Index to[UNROLL];
        u64 from[UNROLL], position[UNROLL];
#pragma unroll
        for (int k = 0; k < UNROLL; ++k) {
            const Index i = first + k * blockDim.x + threadIdx.x;
            if (i >= n) continue;
            Index at[3] = {0, 0, 0};
            locate<Index>(i, dims, at, 3);
            to[k] = at[0];
            position[k] = (u64)indices[at[1]];
            from[k] = at[2];
        }
        Pack<T, WIDTH> packs[UNROLL];
#pragma unroll
        for (int k = 0; k < UNROLL; ++k) {
            const Index i = first + k * blockDim.x + threadIdx.x;
            if (i >= n) continue;
            if (position[k] < axis.size) {
                packs[k] = get<T, WIDTH>(x + from[k] + position[k] * axis.stride);
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

// One index per element, both vectorized.
template <int WIDTH> __device__ inline void gather_wide(T *out, const U *indices, const T *x, const Axis &axis, const Dims &dims) {
    const u32 n = (u32)dims.n, step = gridDim.x * blockDim.x;
    // The stride of an element, not of a vector.
    const u64 element_stride = dims.strides[2][0] / WIDTH;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        u32 at[3] = {0, 0, 0};
        locate<u32>(i, dims, at, 3);
        const Pack<U, WIDTH> positions = get<U, WIDTH>(indices + at[1]);
        Pack<T, WIDTH> pack;
#pragma unroll
        for (int e = 0; e < WIDTH; ++e) {
            const u64 position = (u64)positions.at[e];
            pack.at[e] = position < axis.size ? x[at[2] + e * element_stride + position * axis.stride] : (T)0;
        }
        put<T, WIDTH>(out + at[0], pack);
    }
}

// The same for contiguous rows: a block caches a row in shared memory, where any access order is fast.
__device__ inline void gather_rows(T *out, const U *indices, const T *x, const Axis &axis, const Dims &dims) {
    constexpr int WIDTH = 16 / max_of(sizeof(T), sizeof(U));
    extern __shared__ uint4 row[];
    const u32 packs = (u32)dims.shape[0], rows = (u32)dims.n / packs;
    for (u32 r = blockIdx.x; r < rows; r += gridDim.x) {
        u32 at[3] = {0, 0, 0};
        locate<u32>(r * packs, dims, at, 3);
        const uint4 *const from = (const uint4 *)(x + at[2]);
        for (u32 i = threadIdx.x; i < axis.size * sizeof(T) / 16; i += blockDim.x) row[i] = from[i];
        __syncthreads();
#pragma unroll 4
        for (u32 i = threadIdx.x; i < packs; i += blockDim.x) {
            const Pack<U, WIDTH> positions = get<U, WIDTH>(indices + at[1] + i * WIDTH);
            Pack<T, WIDTH> pack;
#pragma unroll
            for (int e = 0; e < WIDTH; ++e) {
                const u64 position = (u64)positions.at[e];
                pack.at[e] = position < axis.size ? ((const T *)row)[position] : (T)0;
            }
            put<T, WIDTH>(out + at[0] + i * WIDTH, pack);
        }
        __syncthreads();
    }
}

// The result does not overlap the inputs, so later loads may precede earlier stores.
#define GATHER T *out, const U *__restrict__ indices, const T *__restrict__ x, Axis axis, Dims dims
extern "C" __global__ void KERNEL_NAME(NAME, _rows)(GATHER) { gather_rows(out, indices, x, axis, dims); }
extern "C" __global__ void KERNEL_NAME(NAME, _packs)(GATHER) { gather<u32, 16 / sizeof(T)>(out, indices, x, axis, dims); }
extern "C" __global__ void KERNEL_NAME(NAME, _wide)(GATHER) { gather_wide<16 / max_of(sizeof(T), sizeof(U))>(out, indices, x, axis, dims); }
extern "C" __global__ void KERNEL_NAME(NAME, _scalar)(GATHER) { gather<u32, 1>(out, indices, x, axis, dims); }
extern "C" __global__ void KERNEL_NAME(NAME, _scalar64)(GATHER) { gather<u64, 1>(out, indices, x, axis, dims); }

#else

#if defined(OP_scatter_add)
template <class M> __device__ inline M add(M x, M y) { return x + y; }
template <> __device__ inline i32 add(i32 x, i32 y) { return (i32)((u32)x + (u32)y); }
template <> __device__ inline i64 add(i64 x, i64 y) { return (i64)((u64)x + (u64)y); }
#endif

// Operands: the input, the sorted indices, the result without its indexed dimension, and the position among the sorted. Equal indices are
// in their original order: the last one wins, or the first one adds all.
template <class Index, int WIDTH>
__device__ inline void scatter(T *out, const U *sorted, const u32 *order, const T *x, const Axis &axis, const Dims &dims) {
    const Index n = (Index)dims.n, step = (Index)gridDim.x * blockDim.x;
    for (Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        Index at[4] = {0, 0, 0, 0};
        locate<Index>(i, dims, at, 4);
        u64 p = at[3], s = at[1];
        // Treats the sorted position as the original one.
        const T *const from = x + at[0] - p * axis.from_stride;
        const U id = sorted[s];
        const u64 position = (u64)id;
        if (position >= axis.size) continue;
        T *const to = out + at[2] + position * axis.stride;
#if defined(OP_scatter)
        if (p + 1 < axis.length && sorted[s + axis.index_stride] == id) continue;
        put<T, WIDTH>(to, get<T, WIDTH>(from + order[s] * axis.from_stride));
#else
        if (p > 0 && sorted[s - axis.index_stride] == id) continue;
        typedef Traits<T>::Math Math;
        Math sums[WIDTH];
        Pack<T, WIDTH> pack = get<T, WIDTH>(to);
#pragma unroll
        for (int e = 0; e < WIDTH; ++e) sums[e] = widen(pack.at[e]);
        for (;;) {
            pack = get<T, WIDTH>(from + order[s] * axis.from_stride);
#pragma unroll
            for (int e = 0; e < WIDTH; ++e) sums[e] = add(sums[e], widen(pack.at[e]));
            if (++p == axis.length) break;
            s += axis.index_stride;
            if (sorted[s] != id) break;
        }
#pragma unroll
        for (int e = 0; e < WIDTH; ++e) pack.at[e] = Narrow<T>::from(sums[e]);
        put<T, WIDTH>(to, pack);
#endif
    }
}

#define SCATTER T *out, const U *sorted, const u32 *order, const T *x, Axis axis, Dims dims
extern "C" __global__ void KERNEL_NAME(NAME, _packs)(SCATTER) { scatter<u32, 16 / sizeof(T)>(out, sorted, order, x, axis, dims); }
extern "C" __global__ void KERNEL_NAME(NAME, _scalar)(SCATTER) { scatter<u32, 1>(out, sorted, order, x, axis, dims); }
extern "C" __global__ void KERNEL_NAME(NAME, _scalar64)(SCATTER) { scatter<u64, 1>(out, sorted, order, x, axis, dims); }

#endif
