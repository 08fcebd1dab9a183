// Shared by the sampling kernels: ordering of logits, and block reductions.

#pragma once

#include "common/types.cuh"
#include "common/pack.cuh"

#define WAVES (THREADS / WAVE)
#define NEG_INFINITY_F32 (-__int_as_float(0x7f800000))

// NaN is never sampled.
__device__ inline f32 logit_value(T element) {
    const f32 x = widen(element);
    return x == x ? x : NEG_INFINITY_F32;
}
// Order-preserving integer of a float; equal floats have equal keys.
__device__ inline u32 key_of(f32 x) {
    const u32 bits = __float_as_uint(x == 0 ? 0.0f : x);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ inline f32 float_of(u32 key) { return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key); }
// exp(x - largest); `largest` may be infinite.
__device__ inline f32 exp_relative(f32 x, f32 largest) { return x == largest ? 1.0f : exp2f((x - largest) * 1.44269504f); }

// Reduces over the block with `f`, in a fixed order; every thread gets the result.
template <class V, class F> __device__ inline V block_reduce(V value, V *smem, F f) {
#pragma unroll
    for (int offset = WAVE / 2; offset > 0; offset /= 2) value = f(value, __shfl_xor_sync(0xffffffffu, value, offset));
    __syncthreads();
    if (threadIdx.x % WAVE == 0) smem[threadIdx.x / WAVE] = value;
    __syncthreads();
    value = smem[0];
    for (int w = 1; w < WAVES; ++w) value = f(value, smem[w]);
    return value;
}
