// Convolution by definition, one thread per result: for groups with few filters (depthwise), where a matrix tile would be mostly empty.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME conv_direct_f32
#define T f32
#define TRANSPOSED 0
#endif

#include "conv/conv.cuh"

extern "C" __global__ void __launch_bounds__(256) NAME(T *out, const T *__restrict__ x, const T *__restrict__ w, const T *__restrict__ bias, const __grid_constant__ Conv p) {
    const u32 filters = p.filters * p.groups;
    const u64 n = (u64)p.pixels * filters, step = (u64)gridDim.x * blockDim.x;
    // Adjacent lanes write adjacent memory.
    const bool by_filter = p.out[1] < p.out[3];
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        u32 m, filter;
        if (by_filter) {
            m = (u32)(i / filters);
            filter = (u32)(i - (u64)m * filters);
        } else {
            // Filter by filter within an image.
            const u32 each = p.out_height * p.out_width;
            const u32 plane = (u32)(i / each), image = plane / filters;
            filter = plane - image * filters;
            m = image * each + (u32)(i - (u64)plane * each);
        }
        const u32 group = filter / p.filters;
        const T *const from = x + (u64)group * p.channels * p.x[1];
        const T *const weights = w + group * p.w_group + (filter - group * p.filters) * p.w[0];
        const Pixel pixel = pixel_of(p, m);
        f32 sum = 0;
#pragma unroll 1
        for (i32 r = 0; r < p.kernel[0]; ++r) {
#pragma unroll 1
            for (i32 s = 0; s < p.kernel[1]; ++s) {
                const i64 at = tap_offset(p, pixel, r, s);
                if (at < 0) continue;
                const T *const tap = weights + r * p.w[2] + s * p.w[3];
                for (u32 c = 0; c < p.channels; ++c) sum = fma((f32)widen(from[at + (i64)(c * p.x[1])]), (f32)widen(tap[c * p.w[1]]), sum);
            }
        }
        const f32 add = p.has_bias ? (f32)widen(bias[filter * p.bias]) : 0.0f;
        out[result_offset(p, m) + filter * p.out[1]] = Narrow<T>::from(finish(p, sum, add));
    }
}
