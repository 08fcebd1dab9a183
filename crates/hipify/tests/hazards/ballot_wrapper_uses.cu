// expect: WW0204@4
__device__ int place(bool keep, int filled) {
    auto mask = ballot(keep);
    return filled + __popc(mask);
}

__device__ bool member_ballot(bool keep, float *out) {
    auto tile = cg::tiled_partition<32>(cg::this_thread_block());
    out[__popc(tile.ballot(keep))] = 1;
    return tile.thread_rank() == 31;
}
