
#include <hip/hip_runtime.h>
// Special registers, votes, shuffles; a block with registers and a predicate; assembly in a macro.
#define LANE(x) do { unsigned int __ww0 = {}; __ww0 = (unsigned int)__lane_id(); (x) = __ww0; } while (0) \

extern "C" __global__ void lanes(unsigned *out) {
    unsigned lane, r, ballot;
    long long t;
    LANE(lane);
    do { unsigned int __ww0 = {}; __ww0 = (unsigned int)threadIdx.x; (r) = __ww0; } while (0);
    do { unsigned long long __ww0 = {}; __ww0 = (unsigned long long)clock64(); (t) = (__typeof__(t))__ww0; } while (0);
    do { unsigned long long __ww0 = {}; __ww0 = (unsigned long long)wall_clock64(); (t) = (__typeof__(t))__ww0; } while (0);
    do { unsigned int __ww0 = {}; unsigned int __ww1 = (unsigned int)(lane); __ww0 = __shfl_xor(__ww1, (int)(16), 32); (r) = __ww0; } while (0);
    do { unsigned int __ww0 = {}; unsigned int __ww1 = (unsigned int)(lane); unsigned int __ww2 = (unsigned int)(r); bool __ww_p = {}; __ww_p = __ww1 != 0; __ww0 = __ballot(__ww_p); if (__ww_p) { __ww0 = __ww0 + 1; } __ww0 = __ww_p ? __ww0 : __ww2; (ballot) = __ww0; } while (0)







;
    do { unsigned int __ww0 = {}; unsigned int __ww1 = (unsigned int)(r); unsigned long long __ww_rest0 = __ballot(1); int __ww_all0 = __shfl((int)__ww1, __ffsll(__ww_rest0) - 1); for (__ww_rest0 &= __ww_rest0 - 1; __ww_rest0; __ww_rest0 &= __ww_rest0 - 1) { int __ww_a = __ww_all0, __ww_b = __shfl((int)__ww1, __ffsll(__ww_rest0) - 1); __ww_all0 = __ww_a + __ww_b; } __ww0 = (unsigned int)(__ww_all0); (r) = __ww0; } while (0);
    out[lane] = ballot + r + (unsigned)t;
}
