// cooperative_groups::reduce for tiles and coalesced threads.
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
} // namespace cooperative_groups
