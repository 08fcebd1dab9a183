// cooperative_groups::reduce for tiles, coalesced threads and blocks.
#pragma once
#ifdef __clang__
#pragma clang system_header
#endif
#include "../cooperative_groups.h"

namespace cooperative_groups {
#define __WW_OPERATION(name, expression)                                                                                           \
    template <class T = void> struct name {                                                                                        \
        __device__ T operator()(T a, T b) const { return expression; }                                                             \
    };                                                                                                                             \
    template <> struct name<void> {                                                                                                \
        template <class T> __device__ T operator()(T a, T b) const { return expression; }                                          \
    };
__WW_OPERATION(plus, a + b)
__WW_OPERATION(less, b < a ? b : a)
__WW_OPERATION(greater, a < b ? b : a)
__WW_OPERATION(bit_and, a &b)
__WW_OPERATION(bit_or, a | b)
__WW_OPERATION(bit_xor, a ^ b)
#undef __WW_OPERATION

// A butterfly: every thread of the tile gets the result.
template <unsigned int Size, class Parent, class T, class Op>
__device__ inline T reduce(const thread_block_tile<Size, Parent> &group, T value, Op op) {
#pragma unroll
    for (unsigned int step = Size / 2; step; step /= 2) value = op(value, group.shfl_xor(value, step));
    return value;
}
template <class T, class Op> __device__ inline T reduce(const coalesced_group &group, T value, Op op) {
    T result = group.shfl(value, 0);
    for (unsigned int rank = 1; rank < group.size(); rank++) result = op(result, group.shfl(value, rank));
    return result;
}
// Each wave for itself, then over the waves' results in shared memory. Every thread of the block takes part.
template <class T, class Op> __device__ inline T reduce(const thread_block &block, T value, Op op) {
    __attribute__((shared, aligned(16))) static char memory[sizeof(T) * (1024 / WARPWAVE_WAVE_SIZE)];
    T *partial = (T *)memory;
    unsigned int rank = block.thread_rank(), lane = rank % WARPWAVE_WAVE_SIZE, wave = rank / WARPWAVE_WAVE_SIZE;
    unsigned int left = block.size() - wave * WARPWAVE_WAVE_SIZE;
#pragma unroll
    for (unsigned int step = WARPWAVE_WAVE_SIZE / 2; step; step /= 2) {
        T other = __warpwave::shuffle_down(value, step, WARPWAVE_WAVE_SIZE);
        if (lane + step < left && lane + step < WARPWAVE_WAVE_SIZE) value = op(value, other);
    }
    if (lane == 0) partial[wave] = value;
    block.sync();
    T result = partial[0];
    for (unsigned int i = 1; i * WARPWAVE_WAVE_SIZE < block.size(); i++) result = op(result, partial[i]);
    // The next call must not write before all have read.
    block.sync();
    return result;
}
} // namespace cooperative_groups
