// Adds the sums of blocks that share the columns of a product: out[v] = Σ partial[part][v].

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME quant_finish_f16
#define T f16
#endif

#include "common/pdl.cuh"
#include "common/types.cuh"

struct FinishParams {
    u64 out_row, out_stride;
    u32 rows, vectors, parts, unused;
};

extern "C" __global__ void __launch_bounds__(256) NAME(T *out, const f32 *partial, FinishParams p) {
    pdl_sync();
    const u64 all = (u64)p.rows * p.vectors;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < all; i += (u64)gridDim.x * 256) {
        f32 sum = 0;
#pragma unroll 4
        for (u32 part = 0; part < p.parts; ++part) sum += partial[part * all + i];
        out[i / p.rows * p.out_row + i % p.rows * p.out_stride] = Narrow<T>::from(sum);
    }
}
