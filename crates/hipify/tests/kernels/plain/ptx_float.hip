
#include <hip/hip_runtime.h>
// Floating point instructions and conversions.
extern "C" __global__ void floats(const float *in, float *out, unsigned short *half, double *d, int *n) {
    float x = in[threadIdx.x], y;
    do { float __ww0 = {}; float __ww1 = (float)(x); __ww0 = exp2f(__ww1); (y) = __ww0; } while (0);
    out[0] = y;
    do { float __ww0 = {}; float __ww1 = (float)(x); __ww0 = __log2f(__ww1); (y) = __ww0; } while (0);
    out[1] = y;
    do { float __ww0 = {}; float __ww1 = (float)(x); __ww0 = rsqrtf(__ww1); (y) = __ww0; } while (0);
    out[2] = y;
    do { float __ww0 = {}; float __ww1 = (float)(x); __ww0 = 1 / __ww1; (y) = __ww0; } while (0);
    out[3] = y;
    do { float __ww0 = {}; float __ww1 = (float)(x); __ww0 = sqrtf(__ww1); (y) = __ww0; } while (0);
    out[4] = y;
    do { float __ww0 = {}; float __ww1 = (float)(x); __ww0 = __sinf(__ww1); (y) = __ww0; } while (0);
    out[5] = y;
    do { float __ww0 = {}; float __ww1 = (float)(x); __ww0 = tanhf(__ww1); (y) = __ww0; } while (0);
    out[6] = y;
    do { float __ww0 = {}; float __ww1 = (float)(x); __ww0 = fmaf(__ww1, __ww1, __uint_as_float(0x3F800000u)); (y) = __ww0; } while (0);
    out[7] = y;
    do { double __ww0 = {}; double __ww1 = (double)(d[1]); __ww0 = fma(__ww1, __ww1, __ww1); (d[0]) = __ww0; } while (0);
    do { unsigned short __ww0 = {}; float __ww1 = (float)(x); __ww0 = __builtin_bit_cast(unsigned short, (_Float16)((_Float16)(__ww1))); (half[0]) = __ww0; } while (0);
    do { float __ww0 = {}; unsigned short __ww1 = (unsigned short)(half[1]); __ww0 = (float)(__builtin_bit_cast(_Float16, __ww1)); (y) = __ww0; } while (0);
    out[8] = y;
    do { unsigned int __ww0 = {}; float __ww1 = (float)(x); __ww0 = (unsigned int)(__float2int_rz(__ww1)); (n[0]) = __ww0; } while (0);
    do { unsigned int __ww0 = {}; float __ww1 = (float)(x); __ww0 = (unsigned int)(__float2int_rz(rint(__ww1))); (n[1]) = __ww0; } while (0);
    do { float __ww0 = (float)(y); float __ww1 = (float)(x); __ww0 = fmaxf(__ww0, __ww1); (y) = __ww0; } while (0);
    do { float __ww0 = {}; float __ww1 = (float)(y); __ww0 = fabsf(__ww1); (out[9]) = __ww0; } while (0);
}
