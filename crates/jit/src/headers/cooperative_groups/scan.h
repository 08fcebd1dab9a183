// cooperative_groups::inclusive_scan and exclusive_scan for tiles and coalesced threads.
#pragma once
#ifdef __clang__
#pragma clang system_header
#endif
#include "reduce.h"

namespace cooperative_groups {
// Of a tile or of coalesced threads: groups whose size() is at most a wave.
template <class Group, class T, class Op> __device__ inline T inclusive_scan(const Group &group, T value, Op op) {
    for (unsigned int step = 1; step < group.size(); step *= 2) {
        T before = group.shfl_up(value, step);
        if (group.thread_rank() >= step) value = op(before, value);
    }
    return value;
}
template <class Group, class T> __device__ inline T inclusive_scan(const Group &group, T value) {
    return inclusive_scan(group, value, plus<T>());
}
// The first thread gets T().
template <class Group, class T, class Op> __device__ inline T exclusive_scan(const Group &group, T value, Op op) {
    T before = group.shfl_up(inclusive_scan(group, value, op), 1);
    return group.thread_rank() == 0 ? T() : before;
}
template <class Group, class T> __device__ inline T exclusive_scan(const Group &group, T value) {
    return exclusive_scan(group, value, plus<T>());
}
} // namespace cooperative_groups
