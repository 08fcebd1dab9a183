// Adds the partial sums of a split convolution, its bias and its activation, in that order: out = activation(Σ partial + bias).

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME conv_finish_f16
#define T f16
#endif

#define TRANSPOSED 0
#include "common/pack.cuh"
#include "conv/conv.cuh"

extern "C" __global__ void __launch_bounds__(256) NAME(T *out, const T *__restrict__ bias, const f32 *__restrict__ partial, const __grid_constant__ Conv p, u32 splits) {
    const u64 n = (u64)p.pixels * p.filters, step = (u64)gridDim.x * blockDim.x * 4;
    for (u64 i = ((u64)blockIdx.x * blockDim.x + threadIdx.x) * 4; i < n; i += step) {
        const u32 m = (u32)(i / p.filters), filter = (u32)(i - (u64)m * p.filters);
        Pack<f32, 4> sum = get<f32, 4>(partial + i);
        for (u32 part = 1; part < splits; ++part) {
            const Pack<f32, 4> other = get<f32, 4>(partial + part * n + i);
#pragma unroll
            for (int j = 0; j < 4; ++j) sum.at[j] += other.at[j];
        }
        Pack<T, 4> result;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const f32 add = p.has_bias ? (f32)widen(bias[(filter + j) * p.bias]) : 0.0f;
            result.at[j] = Narrow<T>::from(finish(p, sum.at[j], add));
        }
        put<T, 4>(out + result_offset(p, m) + filter, result);
    }
}
