// bfloat16: operators, functions, pairs, conversions, atomics.
#include <cuda_bf16.h>
extern "C" __global__ void bfloats(__nv_bfloat16 *h, nv_bfloat162 *p, float *f) {
    h[0] = h[1] + h[2] * __float2bfloat16(2.0f) - __hdiv(h[1], h[2]);
    h[1] = __hfma(h[0], h[1], h[2]) + hexp(h[0]) + hsqrt(h[1]) + __hmax(h[0], h[1]) + __habs(h[2]);
    p[0] = __hadd2(p[1], p[2]);
    p[1] = __hfma2(p[0], __floats2bfloat162_rn(f[0], f[1]), __bfloat162bfloat162(h[0]));
    f[0] = __bfloat162float(h[0]) + __low2float(p[0]) + __high2float(p[0]) + __bfloat1622float2(p[1]).x;
    h[4] = __ushort_as_bfloat16(__bfloat16_as_ushort(h[3]));
    atomicAdd(h, h[1]);
}
