// Halves: operators, functions, pairs, conversions, atomics.
#include <cuda_fp16.h>
extern "C" __global__ void halves(__half *h, half2 *p, float *f) {
    h[0] = h[1] + h[2] * __float2half(2.0f) - __hdiv(h[1], h[2]);
    h[1] = __hfma(h[0], h[1], h[2]) + hexp(h[0]) + hsqrt(h[1]) + __hmax(h[0], h[1]) + __habs(h[2]) + hrsqrt(h[0]);
    if (__hgt(h[0], h[1]) && !__hisnan(h[2])) h[3] = __int2half_rn(3);
    p[0] = __hadd2(p[1], p[2]);
    p[1] = __hfma2(p[0], __floats2half2_rn(f[0], f[1]), __half2half2(h[0]));
    f[0] = __half2float(h[0]) + __low2float(p[0]) + __high2float(p[0]) + __half22float2(p[1]).x;
    h[4] = __ushort_as_half(__half_as_ushort(h[3]));
    atomicAdd(h, h[1]);
    atomicAdd(p, p[1]);
}
