// The _sync shuffles: every mode, widths, types of 2 to 8 bytes.
#include <cuda_fp16.h>
extern "C" __global__ void shuffles(int *i, float *f, double *d, long long *l, __half *h) {
    int lane = threadIdx.x;
    i[lane] = __shfl_sync(0xffffffff, i[lane], 0) + __shfl_up_sync(0xffffffffu, i[lane], 1) + __shfl_down_sync(~0u, i[lane], 2, 16);
    for (int step = warpSize / 2; step > 0; step /= 2) f[lane] += __shfl_xor_sync(0xffffffff, f[lane], step);
    d[lane] = __shfl_sync(__activemask(), d[lane], 3, 8);
    l[lane] = __shfl_down_sync(0xffffffff, l[lane], 1) + __shfl_sync(0xffffffff, (unsigned long long)l[lane], 1);
    h[lane] = __shfl_xor_sync(0xffffffff, h[lane], 1);
}
