// expect: safe
__device__ int bits_of(unsigned word, const unsigned *words, int i) {
    unsigned mask = words[i];
    int n = __popc(word) + __popc(mask & 0xffffffffu);
    int first = __ffs(words[i / 32]);
    return n + first - __clz(mask);
}
