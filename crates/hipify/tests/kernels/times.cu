// Clocks, sleep, traps, breakpoints, kinds of addresses.
extern "C" __global__ void times(long long *t, int *x) {
    long long begin = clock64();
    clock_t ticks = clock();
    __nanosleep(100);
    if (x[0] == 7) __trap();
    if (x[0] == 8) __brkpt();
    __shared__ int here;
    here = x[1];
    t[0] = clock64() - begin + ticks + __isShared(&here) + __isGlobal(x) + (long long)__cvta_generic_to_shared(&here);
}
