// Counts of equal integers, and of numbers by bins of equal width.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME histogram_f32_i64
#define OP_histogram
#define T f32
#define U i64
#define THREADS 256
#define SHARED_BINS 8192
#endif

#include "common/dims.cuh"
#include "common/pack.cuh"

// The type that a bin is computed in.
template <bool WIDE> struct Real { typedef f32 Type; };
template <> struct Real<true> { typedef f64 Type; };
typedef Real<(sizeof(T) == 8 || (Traits<T>::INTEGER && sizeof(T) == 4))>::Type Number;

struct Bins {
    u64 bins;
    f64 low, high, scale;

    // The bin of an element; `bins` and more if it has none.
    __device__ inline u64 of(T x) const {
#if defined(OP_bincount)
        return (u64)(i64)x;
#else
        const Number value = (Number)widen(x);
        if (!(value >= (Number)low && value <= (Number)high)) return bins;
        const u64 bin = (u64)((value - (Number)low) * (Number)scale);
        // The upper end belongs to the last bin.
        return bin < bins ? bin : bins - 1;
#endif
    }
};

template <class N> struct Counter { typedef u64 Type; };
template <> struct Counter<u32> { typedef u32 Type; };
typedef Counter<U>::Type Count;

// Few bins are counted in shared memory first.
template <class Index, int WIDTH> __device__ inline void add_bins(const T *x, Count *counts, const Bins &bins, const Dims &dims) {
    __shared__ u32 own[SHARED_BINS];
    const bool few = bins.bins <= SHARED_BINS;
    if (few) {
        for (u32 b = threadIdx.x; b < bins.bins; b += THREADS) own[b] = 0;
        __syncthreads();
    }
    const Index n = (Index)dims.n, step = (Index)gridDim.x * THREADS;
#pragma unroll 4
    for (Index i = (Index)blockIdx.x * THREADS + threadIdx.x; i < n; i += step) {
        Index at[1] = {0};
        locate<Index>(i, dims, at, 1);
        const Pack<T, WIDTH> pack = get<T, WIDTH>(x + at[0]);
#pragma unroll
        for (int e = 0; e < WIDTH; ++e) {
            const u64 bin = bins.of(pack.at[e]);
            if (bin >= bins.bins) continue;
            if (few) atomicAdd(&own[bin], 1u);
            else atomicAdd(&counts[bin], (Count)1);
        }
    }
    if (!few) return;
    __syncthreads();
    for (u32 b = threadIdx.x; b < bins.bins; b += THREADS) {
        if (own[b]) atomicAdd(&counts[b], (Count)own[b]);
    }
}

#define HISTOGRAM const T *x, Count *counts, Bins bins, Dims dims
extern "C" __global__ void __launch_bounds__(THREADS) KERNEL_NAME(NAME, _packs)(HISTOGRAM) { add_bins<u32, 16 / sizeof(T)>(x, counts, bins, dims); }
extern "C" __global__ void __launch_bounds__(THREADS) KERNEL_NAME(NAME, _scalar)(HISTOGRAM) { add_bins<u32, 1>(x, counts, bins, dims); }
extern "C" __global__ void __launch_bounds__(THREADS) KERNEL_NAME(NAME, _scalar64)(HISTOGRAM) { add_bins<u64, 1>(x, counts, bins, dims); }
