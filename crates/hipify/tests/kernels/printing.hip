// printf and assert.
#include <cassert>
#include <cstdio>
extern "C" __global__ void printing(int *x) {
    assert(x != nullptr);
    if (threadIdx.x == 0) printf("block %d: %d\n", (int)blockIdx.x, *x);
}
