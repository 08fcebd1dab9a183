// expect: WW0203@3
__device__ unsigned votes_for(bool p) {
    return __ballot_sync(~0ull, p);
}

__device__ int count_for(bool p) {
    return __popcll(__ballot_sync(~0ull, p));
}

__device__ bool anyone(bool p) {
    return __ballot_sync(~0ull, p) != 0;
}
