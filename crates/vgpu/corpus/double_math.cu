// Arithmetic and functions of f64.
#include "elementwise.cuh"

BINARY(add_f64, double, a + b)
BINARY(sub_f64, double, a - b)
BINARY(mul_f64, double, a *b)
BINARY(div_f64, double, a / b)
BINARY(min_f64, double, fmin(a, b))
BINARY(max_f64, double, fmax(a, b))
BINARY(copysign_f64, double, copysign(a, b))
BINARY(fmod_f64, double, fmod(a, b))
BINARY(pow_f64, double, pow(a, b))
TERNARY(fma_f64, double, fma(a, b, c))
UNARY(floor_f64, double, floor(x))
UNARY(ceil_f64, double, ceil(x))
UNARY(rint_f64, double, rint(x))
UNARY(trunc_f64, double, trunc(x))
UNARY(round_f64, double, round(x))
UNARY(sqrt_f64, double, sqrt(x))
UNARY(rsqrt_f64, double, rsqrt(x))
UNARY(cbrt_f64, double, cbrt(x))
UNARY(rcp_f64, double, 1.0 / x)
UNARY(exp_f64, double, exp(x))
UNARY(exp2_f64, double, exp2(x))
UNARY(log_f64, double, log(x))
UNARY(log2_f64, double, log2(x))
UNARY(sin_f64, double, sin(x))
UNARY(cos_f64, double, cos(x))
UNARY(tan_f64, double, tan(x))
UNARY(atan_f64, double, atan(x))
UNARY(tanh_f64, double, tanh(x))
UNARY(erf_f64, double, erf(x))

extern "C" __global__ void ldexp_f64(const double *x, const int *e, double *out, int n) {
    int i = INDEX;
    if (i < n) out[i] = ldexp(x[i], e[i]);
}
extern "C" __global__ void frexp_f64(const double *x, double *mantissa, int *exponent, int n) {
    int i = INDEX;
    if (i < n) mantissa[i] = frexp(x[i], &exponent[i]);
}
