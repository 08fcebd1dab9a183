// expect: WW0201@6, WW0203@6, WW0205@9, WW0204@10
template <int BITS>
__device__ int rank_digit(unsigned digit, int lane, int *counts) {
    unsigned peers = 0xffffffffu;
    for (int b = 0; b < BITS; ++b) {
        unsigned vote = __ballot_sync(0xffffffffu, (digit >> b) & 1);
        peers &= ((digit >> b) & 1) ? vote : ~vote;
    }
    unsigned below = peers & ((1u << lane) - 1u);
    return counts[digit] + __popc(below);
}
