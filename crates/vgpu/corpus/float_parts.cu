// Arithmetic, rounding and parts of f32.
#include "elementwise.cuh"

BINARY(add_f32, float, a + b)
BINARY(sub_f32, float, a - b)
BINARY(mul_f32, float, a *b)
BINARY(div_f32, float, a / b)
BINARY(min_f32, float, fminf(a, b))
BINARY(max_f32, float, fmaxf(a, b))
BINARY(copysign_f32, float, copysignf(a, b))
TERNARY(fma_f32, float, fmaf(a, b, c))
UNARY(floor_f32, float, floorf(x))
UNARY(ceil_f32, float, ceilf(x))
UNARY(rint_f32, float, rintf(x))
UNARY(trunc_f32, float, truncf(x))
UNARY(round_f32, float, roundf(x))
UNARY(abs_f32, float, fabsf(x))
UNARY(neg_f32, float, -x)
UNARY(saturate_f32, float, __saturatef(x))
UNARY_TO(bits_f32, float, unsigned int, __float_as_uint(x))
UNARY_TO(class_f32, float, int, (isnan(x) ? 1 : 0) | (isinf(x) ? 2 : 0) | (isfinite(x) ? 4 : 0) | (signbit(x) ? 8 : 0))
BINARY_TO(compare_f32, float, int,
          (a < b ? 1 : 0) | (a <= b ? 2 : 0) | (a > b ? 4 : 0) | (a >= b ? 8 : 0) | (a == b ? 16 : 0) | (a != b ? 32 : 0) |
              (!(a < b) ? 64 : 0))

extern "C" __global__ void ldexp_f32(const float *x, const int *e, float *out, int n) {
    int i = INDEX;
    if (i < n) out[i] = ldexpf(x[i], e[i]);
}
extern "C" __global__ void frexp_f32(const float *x, float *mantissa, int *exponent, int n) {
    int i = INDEX;
    if (i < n) mantissa[i] = frexpf(x[i], &exponent[i]);
}
extern "C" __global__ void modf_f32(const float *x, float *fraction, float *whole, int n) {
    int i = INDEX;
    if (i < n) fraction[i] = modff(x[i], &whole[i]);
}
extern "C" __global__ void sincos_f32(const float *x, float *sine, float *cosine, int n) {
    int i = INDEX;
    if (i < n) sincosf(x[i], &sine[i], &cosine[i]);
}
// Conversions that say how they round.
extern "C" __global__ void round_to_int_f32(const float *x, int *nearest, int *zero, int *up, int *down, int n) {
    int i = INDEX;
    if (i >= n) return;
    nearest[i] = __float2int_rn(x[i]);
    zero[i] = __float2int_rz(x[i]);
    up[i] = __float2int_ru(x[i]);
    down[i] = __float2int_rd(x[i]);
}
