// expect: WW0210@5, WW0201@6, WW0201@7
struct Stats { float mean, m2; };

__device__ Stats combine_lanes(Stats s) {
    for (int mask = 16; mask >= 1; mask >>= 1) {
        float om = __shfl_xor_sync(0xFFFFFFFFu, s.mean, mask);
        float o2 = __shfl_xor_sync(0xFFFFFFFFu, s.m2, mask);
        s.m2 += o2 + 0.5f * (om - s.mean) * (om - s.mean);
        s.mean = 0.5f * (om + s.mean);
    }
    return s;
}
