// f16, one by one and in pairs.
#include "elementwise.cuh"
#include <cuda_fp16.h>

BINARY(add_f16, __half, a + b)
BINARY(sub_f16, __half, a - b)
BINARY(mul_f16, __half, a *b)
BINARY(div_f16, __half, a / b)
BINARY(min_f16, __half, __hmin(a, b))
BINARY(max_f16, __half, __hmax(a, b))
TERNARY(fma_f16, __half, __hfma(a, b, c))
UNARY(neg_f16, __half, -x)
UNARY(abs_f16, __half, __habs(x))
UNARY(exp_f16, __half, hexp(x))
UNARY(log_f16, __half, hlog(x))
UNARY(sin_f16, __half, hsin(x))
UNARY(sqrt_f16, __half, hsqrt(x))
UNARY(rsqrt_f16, __half, hrsqrt(x))
UNARY(rcp_f16, __half, hrcp(x))
UNARY(floor_f16, __half, hfloor(x))
UNARY(ceil_f16, __half, hceil(x))
UNARY(rint_f16, __half, hrint(x))
UNARY(trunc_f16, __half, htrunc(x))
BINARY_TO(compare_f16, __half, int, (a < b ? 1 : 0) | (a == b ? 2 : 0) | (__hgt(a, b) ? 4 : 0) | (__hne(a, b) ? 8 : 0))

// n counts pairs.
BINARY(add_f16x2, __half2, __hadd2(a, b))
BINARY(mul_f16x2, __half2, __hmul2(a, b))
TERNARY(fma_f16x2, __half2, __hfma2(a, b, c))
BINARY(max_f16x2, __half2, __hmax2(a, b))
UNARY(swap_f16x2, __half2, __lowhigh2highlow(x))

// A dot product of pairs, accumulated in f32: mixed-precision multiply-add.
extern "C" __global__ void mixed_fma_f16(const __half *a, const __half *b, float *out, int n) {
    int i = INDEX;
    if (i < n) out[i] += __half2float(a[i]) * __half2float(b[i]);
}
