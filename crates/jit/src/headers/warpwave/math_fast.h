// CUDA's fast intrinsics (one hardware operation and a multiplication) and those with a stated rounding.
//
// Only round-to-nearest forms exist: another mode would have to switch the wave's mode register around each operation.
#pragma once

// The hardware takes turns, not radians, and only a small range of them.
__WW_DEVICE float __sinf(float x) { return __builtin_amdgcn_sinf(__builtin_amdgcn_fractf(x * 0.15915494309189535f)); }
__WW_DEVICE float __cosf(float x) { return __builtin_amdgcn_cosf(__builtin_amdgcn_fractf(x * 0.15915494309189535f)); }
__WW_DEVICE void __sincosf(float x, float *sine, float *cosine) {
    *sine = __sinf(x);
    *cosine = __cosf(x);
}
__WW_DEVICE float __tanf(float x) { return __sinf(x) * __builtin_amdgcn_rcpf(__cosf(x)); }
__WW_DEVICE float __expf(float x) { return __builtin_exp2f(x * 1.4426950408889634f); }
__WW_DEVICE float __exp10f(float x) { return __builtin_exp2f(x * 3.3219280948873623f); }
__WW_DEVICE float __logf(float x) { return __builtin_log2f(x) * 0.6931471805599453f; }
__WW_DEVICE float __log2f(float x) { return __builtin_log2f(x); }
__WW_DEVICE float __log10f(float x) { return __builtin_log2f(x) * 0.3010299956639812f; }
__WW_DEVICE float __powf(float x, float y) { return __builtin_exp2f(y * __builtin_log2f(x)); }
__WW_DEVICE float __fdividef(float x, float y) { return x * __builtin_amdgcn_rcpf(y); }
__WW_DEVICE float __tanhf(float x) { return 1.0f - 2.0f * __builtin_amdgcn_rcpf(1.0f + __expf(2.0f * x)); }
__WW_BOTH float __saturatef(float x) { return __builtin_fminf(__builtin_fmaxf(x, 0.0f), 1.0f); }

// Contraction is off: these are asked for so that a product and a sum stay two roundings.
#define __WW_EXACT(type, prefix, fma_name)                                                                                         \
    __WW_BOTH type __##prefix##add_rn(type x, type y) {                                                                            \
        _Pragma("clang fp contract(off)") return x + y;                                                                            \
    }                                                                                                                              \
    __WW_BOTH type __##prefix##sub_rn(type x, type y) {                                                                            \
        _Pragma("clang fp contract(off)") return x - y;                                                                            \
    }                                                                                                                              \
    __WW_BOTH type __##prefix##mul_rn(type x, type y) {                                                                            \
        _Pragma("clang fp contract(off)") return x * y;                                                                            \
    }                                                                                                                              \
    __WW_BOTH type __##prefix##div_rn(type x, type y) { return x / y; }                                                            \
    __WW_BOTH type __##prefix##rcp_rn(type x) { return 1 / x; }                                                                    \
    __WW_BOTH type __##prefix##sqrt_rn(type x) { return sqrt(x); }                                                                 \
    __WW_BOTH type fma_name(type x, type y, type z) { return fma(x, y, z); }
__WW_EXACT(float, f, __fmaf_rn)
__WW_EXACT(double, d, __fma_rn)
#undef __WW_EXACT
__WW_BOTH float __frsqrt_rn(float x) { return __ocml_rsqrt_f32(x); }
