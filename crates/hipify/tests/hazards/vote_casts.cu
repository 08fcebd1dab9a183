// expect: WW0203@3, WW0203@4, WW0203@5
__device__ void publish(unsigned *words, bool p, int w) {
    words[w] = __ballot_sync(~0ull, p);
    auto low = (unsigned)__ballot_sync(~0ull, !p);
    auto also = static_cast<uint32_t>(__ballot_sync(~0ull, p));
    words[w + 1] = low ^ also;
}
