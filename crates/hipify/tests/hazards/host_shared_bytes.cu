// expect: WW0212@7
void launch(float *x, int n) {
    const int threads = 256;
    const size_t shared = (threads / 32) * sizeof(float);
    const int blocks = (n + 32 - 1) / 32;
    kernel<<<blocks, threads, shared>>>(x, n);
    int nwarps = threads >> 5;
    other<<<blocks * nwarps, 32>>>(x, n);
}
