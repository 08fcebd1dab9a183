// Votes, ballots, masks of lanes, matches, reductions, barriers of a warp.
extern "C" __global__ void votes(int *x, unsigned *bits) {
    int v = x[threadIdx.x], all;
    auto active = __activemask();
    auto ballot = __ballot_sync(active, v > 0);
    if (__any_sync(0xffffffff, v == 7) && !__all_sync(active, v == 7)) v += __popcll(ballot);
    __syncwarp();
    if (threadIdx.x < 16) v += __ballot_sync(0xffff, v & 1) != 0;
    __syncwarp(0xffffffff);
    auto same = __match_any_sync(active, v);
    auto every = __match_all_sync(active, (unsigned long long)v, &all);
    bits[0] = __reduce_add_sync(active, (unsigned)v) + __reduce_or_sync(active, (unsigned)v) + (unsigned)__reduce_min_sync(active, v);
    bits[1] = __reduce_max_sync(active, v) + __reduce_and_sync(active, bits[0]) + __reduce_xor_sync(active, bits[0]);
    x[threadIdx.x] = v + __popcll(same) + (every != 0) + all + __syncthreads_count(v) + __syncthreads_or(v) + __syncthreads_and(v);
}
