// Math: functions, fast ones, roundings, bits of floats.
#include <math_constants.h>
extern "C" __global__ void mathematics(float *f, double *d) {
    f[0] = sinf(f[1]) + expf(f[1]) + powf(f[1], f[2]) + rsqrtf(f[1]) + fmaf(f[1], f[2], f[3]) + erff(f[1]) + CUDART_INF_F;
    f[1] = __sinf(f[1]) + __expf(f[1]) + __powf(f[1], f[2]) + __fdividef(f[1], f[2]) + __logf(f[1]) + __saturatef(f[1]);
    f[2] = __fadd_rn(f[1], f[2]) + __fmul_rn(f[1], f[2]) + __fsqrt_rn(f[1]) + __frcp_rn(f[1]) + __fmaf_rn(f[1], f[2], f[3]);
    f[3] = __int_as_float(__float_as_int(f[1]) & 0x7fffffff) + __float2int_rn(f[1]) + __float2uint_rz(f[2]) + __int2float_rn(3);
    d[0] = sin(d[1]) + __dadd_rn(d[1], d[2]) + __longlong_as_double(__double_as_longlong(d[1])) + fmin(d[1], d[2]) + norm3d(d[0], d[1], d[2]);
    sincosf(f[4], &f[5], &f[6]);
}
