// expect: WW0216@3, WW0201@5
__global__ void any_set(const int *flags, int *out) {
    if (threadIdx.x < 32) {
        bool p = flags[threadIdx.x] != 0;
        if (__any_sync(0xffffffffu, p)) *out = 1;
    }
}
