// expect: WW0203@3
__device__ void vote_into(unsigned *out, bool p) {
    *out = __ballot_sync(~0ull, p);
}
