// printf and assert.
#include <assert.h>
#include <stdio.h>

extern "C" __global__ void print_words(int base) {
    if (threadIdx.x == 0 && blockIdx.x == 0) printf("corpus: %d %u %lld %5.2f %s %c%%\n", base, 7u, 1ll << 40, 2.5, "words", 'x');
}
extern "C" __global__ void print_lanes(const int *in) {
    if (in[threadIdx.x] % 2) printf("lane %d has %d\n", (int)threadIdx.x, in[threadIdx.x]);
}
extern "C" __global__ void assert_passes(const int *in, int *out) {
    assert(in[threadIdx.x] >= 0);
    out[threadIdx.x] = in[threadIdx.x] + 1;
}
extern "C" __global__ void assert_fails(const int *in, int *out) {
    assert(in[threadIdx.x] != 13);
    out[threadIdx.x] = in[threadIdx.x] + 1;
}
