
#include <hip/hip_runtime.h>
// setp, selp, predicated instructions, barriers, fences, special registers.
extern "C" __global__ void control(unsigned *u, float *f) {
    unsigned r, s;
    do { unsigned int __ww0 = {}; float __ww1 = (float)(f[0]); float __ww2 = (float)(f[1]); bool __ww_p = {}; bool __ww_q = {}; __ww_p = !(__ww1 >= __ww2); __ww_q = __ww1 == __ww1 && __ww2 == __ww2; __ww0 = __ww_p ? 1 : 0; if (!__ww_q) { __ww0 = 7; } (r) = __ww0; } while (0)
;
    do { __syncthreads(); __threadfence_block(); __threadfence_system(); __threadfence(); } while (0);
    do { unsigned int __ww0 = {}; __ww0 = (unsigned int)blockIdx.x; (s) = __ww0; } while (0);
    do { unsigned int __ww0 = {}; unsigned int __ww1 = (unsigned int)(s); unsigned int __ww2 = (unsigned int)(r); unsigned int __ww_t0 = {}; unsigned int __ww_t1 = {}; __ww_t0 = (unsigned int)blockDim.x; __ww0 = __ww_t0 * __ww1 + __ww2; (s) = __ww0; } while (0);
    do { float __ww0 = {}; float __ww1 = (float)(f[1]); __ww0 = 1 / __ww1; (f[2]) = __ww0; } while (0);
    do { unsigned int __ww0 = {}; __ww0 = 0x3F800000u; (u[2]) = __ww0; } while (0);
    do { float __ww0 = {}; float __ww1 = (float)(f[2]); __ww0 = __ww1 * __uint_as_float(0x40000000u); (f[3]) = __ww0; } while (0);
    do { unsigned int __ww0 = {}; unsigned int __ww1 = (unsigned int)(r); __ww0 = __ww1 == 0 ? 0xffffffffu : (unsigned int)(31 - __clz((int)__ww1)); (u[1]) = __ww0; } while (0);
    u[0] = r + s;
}
