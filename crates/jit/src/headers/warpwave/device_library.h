// The switches of AMD's device library (OCML), and its functions.
//
// The library reads its switches from constants that the vendor's compiler links in, one file per architecture. They are defined
// here instead: no such file is needed, and an architecture newer than the installed library works. A device constant of external
// linkage would count as initialized from outside and never be folded, so each is a hidden alias of an internal one (of __device__
// variables: clang 22 drops aliases of __constant__ ones). Compared for sin,
// pow and exp on gfx90a with clang 19: the machine code is the same as with the vendor's files.
#pragma once

#define __WW_SWITCH(type, name, value)                                                                                             \
    static __device__ const type __warpwave##name asm("__warpwave" #name) = value;                                                 \
    extern "C" __attribute__((visibility("hidden"), alias("__warpwave" #name))) __device__ const type name;

__WW_SWITCH(unsigned char, __oclc_finite_only_opt, 0)
__WW_SWITCH(unsigned char, __oclc_unsafe_math_opt, 0)
__WW_SWITCH(unsigned char, __oclc_daz_opt, 0)
__WW_SWITCH(unsigned char, __oclc_correctly_rounded_sqrt32, 1)
__WW_SWITCH(unsigned char, __oclc_wavefrontsize64, WARPWAVE_WAVE_SIZE == 64)
__WW_SWITCH(unsigned int, __oclc_ISA_version, WARPWAVE_ISA_VERSION)
__WW_SWITCH(unsigned int, __oclc_ABI_version, WARPWAVE_CODE_OBJECT_VERSION * 100)
#undef __WW_SWITCH

#define __WW_OCML1(name)                                                                                                           \
    __device__ __attribute__((const)) float __ocml_##name##_f32(float);                                                            \
    __device__ __attribute__((const)) double __ocml_##name##_f64(double);
#define __WW_OCML2(name)                                                                                                           \
    __device__ __attribute__((const)) float __ocml_##name##_f32(float, float);                                                     \
    __device__ __attribute__((const)) double __ocml_##name##_f64(double, double);
#define __WW_OCML3(name)                                                                                                           \
    __device__ __attribute__((const)) float __ocml_##name##_f32(float, float, float);                                              \
    __device__ __attribute__((const)) double __ocml_##name##_f64(double, double, double);
#define __WW_OCML4(name)                                                                                                           \
    __device__ __attribute__((const)) float __ocml_##name##_f32(float, float, float, float);                                       \
    __device__ __attribute__((const)) double __ocml_##name##_f64(double, double, double, double);
#define __WW_PRIVATE(type) __attribute__((address_space(5))) type

extern "C" {
__WW_OCML1(acos) __WW_OCML1(acosh) __WW_OCML1(asin) __WW_OCML1(asinh) __WW_OCML1(atan) __WW_OCML1(atanh) __WW_OCML1(cbrt)
__WW_OCML1(cos) __WW_OCML1(cosh) __WW_OCML1(cospi) __WW_OCML1(erf) __WW_OCML1(erfc) __WW_OCML1(erfcinv) __WW_OCML1(erfcx)
__WW_OCML1(erfinv) __WW_OCML1(exp) __WW_OCML1(exp10) __WW_OCML1(exp2) __WW_OCML1(expm1) __WW_OCML1(i0) __WW_OCML1(i1)
__WW_OCML1(j0) __WW_OCML1(j1) __WW_OCML1(lgamma) __WW_OCML1(log) __WW_OCML1(log10) __WW_OCML1(log1p) __WW_OCML1(log2)
__WW_OCML1(logb) __WW_OCML1(ncdf) __WW_OCML1(ncdfinv) __WW_OCML1(rcbrt) __WW_OCML1(rsqrt) __WW_OCML1(sin) __WW_OCML1(sinh)
__WW_OCML1(sinpi) __WW_OCML1(tan) __WW_OCML1(tanh) __WW_OCML1(tgamma) __WW_OCML1(y0) __WW_OCML1(y1)
__WW_OCML2(atan2) __WW_OCML2(fdim) __WW_OCML2(fmod) __WW_OCML2(hypot) __WW_OCML2(nextafter) __WW_OCML2(pow)
__WW_OCML2(remainder) __WW_OCML2(rhypot)
__WW_OCML3(len3) __WW_OCML3(rlen3) __WW_OCML4(len4) __WW_OCML4(rlen4)
__device__ __attribute__((const)) float __ocml_ldexp_f32(float, int);
__device__ __attribute__((const)) double __ocml_ldexp_f64(double, int);
__device__ __attribute__((const)) float __ocml_pown_f32(float, int);
__device__ __attribute__((const)) double __ocml_pown_f64(double, int);
__device__ __attribute__((const)) int __ocml_ilogb_f32(float);
__device__ __attribute__((const)) int __ocml_ilogb_f64(double);
__device__ float __ocml_frexp_f32(float, __WW_PRIVATE(int) *);
__device__ double __ocml_frexp_f64(double, __WW_PRIVATE(int) *);
__device__ float __ocml_modf_f32(float, __WW_PRIVATE(float) *);
__device__ double __ocml_modf_f64(double, __WW_PRIVATE(double) *);
__device__ float __ocml_remquo_f32(float, float, __WW_PRIVATE(int) *);
__device__ double __ocml_remquo_f64(double, double, __WW_PRIVATE(int) *);
__device__ float __ocml_sincos_f32(float, __WW_PRIVATE(float) *);
__device__ double __ocml_sincos_f64(double, __WW_PRIVATE(double) *);
__device__ float __ocml_sincospi_f32(float, __WW_PRIVATE(float) *);
__device__ double __ocml_sincospi_f64(double, __WW_PRIVATE(double) *);
}
#undef __WW_OCML1
#undef __WW_OCML2
#undef __WW_OCML3
#undef __WW_OCML4
