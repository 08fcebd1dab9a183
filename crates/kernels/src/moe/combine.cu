// Weighted sums of each token's expert results: out[t] = Σ weights[t][j] · x[t][j].

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME moe_combine
#endif

#include "common/pdl.cuh"
#include "common/types.cuh"

struct Combine {
    u64 elements;
    u32 columns, used;
};

extern "C" __global__ void __launch_bounds__(256) NAME(const f32 *x, const f32 *weights, f32 *out, Combine c) {
    pdl_sync();
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < c.elements; i += (u64)gridDim.x * 256) {
        const u64 token = i / c.columns, column = i - token * c.columns;
        const f32 *from = x + token * c.used * c.columns + column, *each = weights + token * c.used;
        f32 sum = 0;
        for (u32 j = 0; j < c.used; ++j) sum = fmaf(each[j], from[(u64)j * c.columns], sum);
        out[i] = sum;
    }
}
