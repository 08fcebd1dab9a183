// expect: safe
// A warp has 32 lanes: lane = threadIdx.x & 31, mask 0xffffffff, and __ballot_sync(0xffffffff, p) fills 32 bits.
/* for (int offset = 16; offset > 0; offset /= 2) v += __shfl_down_sync(0xffffffff, v, offset); */
#include <cstdio>
__global__ void talk() {
    if (threadIdx.x == 0) printf("%%laneid: use __shfl_sync(0xffffffff, v, 31), WARP_SIZE 32, vote.ballot\n");
}
