// Shapes and strides of strided operands.

#pragma once

#include "common/types.cuh"

#define MAX_DIMS 6

__host__ __device__ constexpr int max_of(int a, int b) { return a > b ? a : b; }

// Innermost dimension first. A stride of 0 broadcasts.
struct Dims {
    u64 n;
    u32 rank, padding;
    u64 shape[MAX_DIMS];
    // 32-bit division by the shape: high half of a product, an addition, a shift.
    u32 magic[MAX_DIMS], shift[MAX_DIMS];
    u64 strides[4][MAX_DIMS];
};

template <class Index> __device__ inline Index divide(Index x, const Dims &dims, int d) {
    if constexpr (sizeof(Index) == 4) return (__umulhi(x, dims.magic[d]) + x) >> dims.shift[d];
    else return x / dims.shape[d];
}

// Adds the offsets of element `i` in the first `operands`.
template <class Index> __device__ inline void locate(Index i, const Dims &dims, Index *at, int operands) {
    Index rest = i;
#pragma unroll 1
    for (int d = 0; d < dims.rank; ++d) {
        Index position = rest;
        if (d + 1 < dims.rank) {
            const Index outer = divide<Index>(rest, dims, d);
            position = rest - outer * (Index)dims.shape[d];
            rest = outer;
        }
#pragma unroll
        for (int k = 0; k < operands; ++k) at[k] += position * (Index)dims.strides[k][d];
    }
}
