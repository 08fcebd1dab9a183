#pragma once

#include "common/types.cuh"

// Sine and cosine of an unrounded product: for large angles the last digits matter most.
__device__ inline void sincos_product(f32 position, f32 frequency, f32 &sine, f32 &cosine) {
    const f32 angle = position * frequency, low = fmaf(position, frequency, -angle);
    const f32 quarters = rintf(angle * 0.636619772f);
    f32 x = fmaf(-quarters, 1.57079637f, angle);
    x = fmaf(-quarters, -4.37113883e-8f, x) + low;
    // For large angles the first estimate can be off by one.
    const f32 extra = rintf(x * 0.636619772f);
    x = fmaf(-extra, -4.37113883e-8f, fmaf(-extra, 1.57079637f, x));
    const f32 s = x * x;
    const f32 near_sine = fmaf(fmaf(fmaf(fmaf(2.86567956e-6f, s, -1.98559923e-4f), s, 8.33338592e-3f), s, -1.66666672e-1f), s * x, x);
    const f32 near_cosine = fmaf(fmaf(fmaf(fmaf(2.44677067e-5f, s, -1.38877297e-3f), s, 4.16666567e-2f), s, -0.5f), s, 1.0f);
    const i32 quadrant = (i32)quarters + (i32)extra;
    sine = quadrant & 1 ? near_cosine : near_sine;
    cosine = quadrant & 1 ? near_sine : near_cosine;
    if (quadrant & 2) sine = -sine;
    if ((quadrant + 1) & 2) cosine = -cosine;
}
// Not inlined on AMD: its constants would spill scalar registers of the kernel.
#if defined(__AMDGCN__)
#define NOINLINE __attribute__((noinline))
#else
#define NOINLINE inline
#endif
static __device__ NOINLINE void sincos_product(f64 position, f32 frequency, f64 &sine, f64 &cosine) { sincos(position * frequency, &sine, &cosine); }
