// expect: safe
__device__ int vote_uses(bool p, int lane, int *out) {
    auto all = __ballot_sync(~0ull, p);
    uint64_t none = __ballot_sync(~0ull, !p);
    bool some = __ballot_sync(~0ull, p);
    int mine = (__ballot_sync(~0ull, p) >> lane) & 1;
    if (__ballot_sync(~0ull, p) == 0) return 0;
    size_t kept = __ballot_sync(~0ull, p);
    out[0] = some + mine;
    return __popcll(all) - __popcll(none) + (kept != 0);
}
