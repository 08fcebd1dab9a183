// Shared by the kernels that quantize: arithmetic rounded as GGUF defines, and reductions over lanes.

#pragma once

#include "quant/blocks.cuh"

// Products and sums that are rounded separately (no FMA).
#if defined(__AMDGCN__)
#pragma clang fp contract(off)
__device__ inline f32 multiply_rn(f32 a, f32 b) { return a * b; }
__device__ inline f32 add_rn(f32 a, f32 b) { return a + b; }
#pragma clang fp contract(on)
#else
__device__ inline f32 multiply_rn(f32 a, f32 b) { return __fmul_rn(a, b); }
__device__ inline f32 add_rn(f32 a, f32 b) { return __fadd_rn(a, b); }
#endif
__device__ inline f32 inverse(f32 d) { return d != 0 ? 1.0f / d : 0.0f; }
// Rounds a number of magnitude below 2^22 to nearest even: two additions, because the instruction has an eighth of their rate.
__device__ inline f32 round_small(f32 x) { return add_rn(add_rn(x, 12582912.0f), -12582912.0f); }
// Between integers: rounding after clamping is the same as before. NaN becomes the least.
__device__ inline f32 round_clamped(f32 x, f32 least, f32 most) { return round_small(fminf(fmaxf(x, least), most)); }

// Reductions over groups of COUNT lanes.
#define LANE_REDUCE(FUNCTION, TYPE, EXPRESSION)                                                                                    \
    template <int COUNT, int FROM = 1> __device__ inline TYPE FUNCTION(TYPE a) {                                                   \
        _Pragma("unroll") for (int apart = FROM; apart < COUNT; apart *= 2) {                                                      \
            const TYPE b = __shfl_xor_sync(0xffffffffu, a, apart);                                                                 \
            a = EXPRESSION;                                                                                                        \
        }                                                                                                                          \
        return a;                                                                                                                  \
    }
LANE_REDUCE(sum_of, f32, a + b)
LANE_REDUCE(max_of, f32, fmaxf(a, b))
LANE_REDUCE(min_of, f32, fminf(a, b))
LANE_REDUCE(bits_of, u32, a | b)
LANE_REDUCE(count_of, i32, a + b)

// The value of largest magnitude among COUNT lanes, the first of equals.
template <int COUNT> __device__ inline f32 largest_of(f32 x) {
    f32 value = x == x ? x : 0.0f;
    int from = threadIdx.x;
#pragma unroll
    for (int apart = 1; apart < COUNT; apart *= 2) {
        const f32 other = __shfl_xor_sync(0xffffffffu, value, apart);
        const int there = __shfl_xor_sync(0xffffffffu, from, apart);
        const bool take = fabsf(other) > fabsf(value) || (fabsf(other) == fabsf(value) && there < from);
        value = take ? other : value;
        from = take ? there : from;
    }
    return value;
}

__device__ inline void put_half(u8 *at, f32 x) { *(u16 *)at = to_f16(x); }
