// Packs activations for gemm_f16.cu: in the type, scale and order of halves.cuh for weights of T, whole chunks of columns.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME quant_pack_q4_0_f32
#define T q4_0
#define U f32
#endif

#include "common/pdl.cuh"
#include "quant/halves.cuh"

struct PackParams {
    // Row and column stride of x in elements.
    u64 x_row, x_stride;
    u32 vectors, columns, chunks, unused;
};

extern "C" __global__ void __launch_bounds__(256) NAME(Operand<T>::Type *out, const U *x, PackParams p) {
    typedef Operand<T>::Type E;
    constexpr int COLUMNS = Operand<T>::COLUMNS;
    pdl_sync();
    // A thread writes 8 elements.
    const u64 pieces = (u64)p.vectors * p.chunks * (COLUMNS / 8);
    for (u64 piece = (u64)blockIdx.x * 256 + threadIdx.x; piece < pieces; piece += (u64)gridDim.x * 256) {
        const int place = (int)(piece % (COLUMNS / 8)) * 8, group = place / 128, step = place / 16 % 8;
        const u64 chunk = piece / (COLUMNS / 8), vector = chunk / p.chunks;
        const u32 column0 = (u32)(chunk % p.chunks) * COLUMNS;
        const U *from = x + vector * p.x_row;
        union Packed { uint4 raw; E at[8]; __device__ Packed() {} };
        Packed packed;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const u32 column = column0 + Order<T>::column(group, step, position(place % 16 + i));
            packed.at[i] = Narrow<E>::from(column < p.columns ? widen(from[column * p.x_stride]) * (1 / Operand<T>::DIVISOR) : 0.0f);
        }
        *(uint4 *)(out + piece * 8) = packed.raw;
    }
}
