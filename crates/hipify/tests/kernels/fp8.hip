// Floats of 8 bits.
#include <cuda_fp8.h>
extern "C" __global__ void small(__nv_fp8_e4m3 *a, __nv_fp8_e5m2 *b, float *f, __half *h) {
    a[0] = __nv_fp8_e4m3(f[0]);
    b[0] = __nv_fp8_e5m2(f[1]);
    f[2] = float(a[1]) + float(b[1]);
    h[0] = __half(__nv_cvt_fp8_to_halfraw(a[2].__x, __NV_E4M3));
    a[3].__x = __nv_cvt_float_to_fp8(f[3], __NV_SATFINITE, __NV_E4M3);
}
