// Dequantizes blocks of T to elements of type U. A thread has the same words of both runs of a unit, two times 16 bytes of the result,
// UNROLL times.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME dequantize_q4_0_f32
#define T q4_0
#define U f32
#define UNROLL 1
#endif

#include "quant/blocks.cuh"

template <class R> union Vec16 {
    uint4 raw;
    R at[16 / sizeof(R)];
    __device__ Vec16() {}
};

struct Rows {
    // Row pitch of the blocks in bytes; row and column stride of the result in elements.
    u64 weights_row, out_row, out_stride;
    u64 rows, units;
    // Whether the result can be written as aligned 16-byte vectors.
    u32 wide, unused;
};

template <class F, class R> __device__ inline void dequantize_rows(R *out, const u8 *weights, const SeparateScales &separate, const Rows &p) {
    // Words of each run per thread; threads per unit; units per block.
    constexpr u32 WORDS = 4 / sizeof(R), EACH = 4 / WORDS, TILE = 256 * UNROLL / EACH;
    for (u64 row = blockIdx.y; row < p.rows; row += gridDim.y) {
        for (u64 unit0 = (u64)blockIdx.x * TILE; unit0 < p.units; unit0 += (u64)gridDim.x * TILE) {
            const u8 *from = weights + row * p.weights_row + unit0 / units_of<F>() * F::BYTES;
            R *to = out + row * p.out_row + unit0 * 32 * p.out_stride;
            const u32 units = p.units - unit0 < TILE ? (u32)(p.units - unit0) : TILE;
            Unit<F, WORDS, false> data[UNROLL];
            Scale scales[UNROLL][2];
#pragma unroll
            for (int i = 0; i < UNROLL; ++i) {
                const u32 u = (i * 256 + threadIdx.x) / EACH;
                const int unit = u % units_of<F>(), k = threadIdx.x % EACH * WORDS;
                if (u >= units) break;
                const u8 *block = from + u / units_of<F>() * F::BYTES;
                data[i].load(block, (u32)(u64)block, unit, k);
                F::scales(scales[i], block, unit, separate, row, (u32)unit0 + u);
            }
#pragma unroll
            for (int i = 0; i < UNROLL; ++i) {
                const u32 u = (i * 256 + threadIdx.x) / EACH;
                const int unit = u % units_of<F>(), k = threadIdx.x % EACH * WORDS;
                if (u >= units) break;
#pragma unroll
                for (int run = 0; run < 2; ++run) {
                    Vec16<R> result;
#pragma unroll
                    for (int w = 0; w < WORDS; ++w) {
                        f32 values[4];
                        to_floats<F>(data[i].codes(unit, run, w, k), values);
#pragma unroll
                        for (int j = 0; j < 4; ++j) {
                            const Scale scale = scales[i][run];
                            const f32 value = F::MINIMUM ? fmaf(scale.d, values[j], scale.m) : scale.d * values[j];
                            result.at[w * 4 + j] = Narrow<R>::from(value);
                        }
                    }
                    const u32 column = u / units_of<F>() * F::BLOCK + F::first(unit) + run * F::GAP + k * 4;
                    if (p.wide) {
                        __stwb((uint4 *)(to + column), result.raw);
                    } else {
#pragma unroll
                        for (int j = 0; j < WORDS * 4; ++j) to[(column + j) * p.out_stride] = result.at[j];
                    }
                }
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256, 8)
NAME(U *out, const u8 *weights, const void *scales, const u8 *zeros, Groups groups, Rows p) {
    dequantize_rows<T, U>(out, weights, SeparateScales{scales, zeros, groups}, p);
}
