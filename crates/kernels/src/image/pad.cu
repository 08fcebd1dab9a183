// Padding of any dimensions. T is an unsigned integer of the element's size.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME pad_u32
#define T u32
#endif

#include "common/dims.cuh"

#define CONSTANT 0
#define REFLECT 1

// By dimension, innermost first: where the input begins in the result, and its size.
struct Pad {
    i64 before[MAX_DIMS], size[MAX_DIMS];
    // The bits of a constant.
    u64 value;
    u32 mode, unused;
};

// Operands: the result and the input.
extern "C" __global__ void __launch_bounds__(256) NAME(T *out, const T *__restrict__ x, const __grid_constant__ Pad p, const __grid_constant__ Dims dims) {
    const u32 n = (u32)dims.n, step = gridDim.x * blockDim.x;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        u32 rest = i;
        u64 to = 0, from = 0;
        bool inside = true;
#pragma unroll 1
        for (int d = 0; d < dims.rank; ++d) {
            const u32 outer = divide<u32>(rest, dims, d), position = rest - outer * (u32)dims.shape[d];
            rest = outer;
            const i64 last = p.size[d] - 1;
            i64 at = (i64)position - p.before[d];
            if (p.mode == CONSTANT) {
                inside = inside && at >= 0 && at <= last;
            } else if (p.mode == REFLECT) {
                at = at < 0 ? -at : at > last ? 2 * last - at : at;
            } else {
                at = at < 0 ? 0 : at > last ? last : at;
            }
            to += position * dims.strides[0][d];
            from += (u64)at * dims.strides[1][d];
        }
        out[to] = inside ? x[from] : (T)p.value;
    }
}
