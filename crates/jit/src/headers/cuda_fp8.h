// __nv_fp8_e4m3 and __nv_fp8_e5m2 for AMD, under the names of CUDA's header.
//
// These are the OCP formats, as on NVIDIA; the formats of gfx94x have another bias and no infinities, and are not used. Conversions
// are done in integer arithmetic on every GPU alike: to nearest even, beyond the largest value to that value.
#pragma once
#ifdef __clang__
#pragma clang system_header
#endif
#include "cuda_bf16.h"
#include "cuda_fp16.h"

typedef unsigned char __nv_fp8_storage_t;
typedef unsigned short __nv_fp8x2_storage_t;
typedef unsigned int __nv_fp8x4_storage_t;
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

namespace __warpwave {
// Bits of mantissa, the exponent's bias, the largest finite value's bits, and what an overflow without saturation becomes.
struct e4m3 { static const int mantissa = 3, bias = 7; static const unsigned char largest = 0x7e, overflow = 0x7f, nan = 0x7f; };
struct e5m2 { static const int mantissa = 2, bias = 15; static const unsigned char largest = 0x7b, overflow = 0x7c, nan = 0x7f; };

template <class Format> __WW_BOTH unsigned char to_fp8(double value, bool saturate) {
    unsigned long long bits = __builtin_bit_cast(unsigned long long, value);
    unsigned char sign = (unsigned char)(bits >> 56) & 0x80;
    if (value != value) return Format::nan;
    int exponent = (int)((bits >> 52) & 0x7ff) - 1023;
    unsigned long long mantissa = (bits & 0xfffffffffffffull) | 0x10000000000000ull;
    int lowest = 1 - Format::bias;
    // Below the lowest exponent the numbers are evenly spaced: more bits are dropped.
    int drop = 52 - Format::mantissa + (exponent < lowest ? lowest - exponent : 0);
    if (drop > 54) return sign;
    unsigned long long kept = mantissa >> drop, rest = mantissa & ((1ull << drop) - 1), half = 1ull << (drop - 1);
    if (rest > half || (rest == half && (kept & 1))) kept++;
    // The implicit bit, and a carry out of the mantissa, count the exponent up by themselves.
    long long result = exponent < lowest ? (long long)kept : (long long)kept + ((long long)(exponent - lowest) << Format::mantissa);
    if (result > Format::largest) result = saturate ? Format::largest : Format::overflow;
    return (unsigned char)result | sign;
}
template <class Format> __WW_BOTH float from_fp8(unsigned char bits) {
    int exponent = (bits & 0x7f) >> Format::mantissa;
    int mantissa = bits & ((1 << Format::mantissa) - 1);
    float value;
    if (Format::mantissa == 3 && (bits & 0x7f) == 0x7f) {
        value = __builtin_nanf("");
    } else if (Format::mantissa == 2 && exponent == 31) {
        value = mantissa ? __builtin_nanf("") : __builtin_inff();
    } else if (exponent == 0) {
        // A multiple of the smallest number.
        value = (float)mantissa * __builtin_bit_cast(float, (unsigned int)(127 + 1 - Format::bias - Format::mantissa) << 23);
    } else {
        value = __builtin_bit_cast(float, (unsigned int)(exponent - Format::bias + 127) << 23 | (unsigned int)mantissa << (23 - Format::mantissa));
    }
    return bits & 0x80 ? -value : value;
}
__WW_BOTH unsigned char to_fp8(double value, bool saturate, __nv_fp8_interpretation_t kind) {
    return kind == __NV_E4M3 ? to_fp8<e4m3>(value, saturate) : to_fp8<e5m2>(value, saturate);
}
} // namespace __warpwave

__WW_BOTH __nv_fp8_storage_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t saturate, __nv_fp8_interpretation_t kind) {
    return __warpwave::to_fp8(x, saturate == __NV_SATFINITE, kind);
}
__WW_BOTH __nv_fp8_storage_t __nv_cvt_double_to_fp8(double x, __nv_saturation_t saturate, __nv_fp8_interpretation_t kind) {
    return __warpwave::to_fp8(x, saturate == __NV_SATFINITE, kind);
}
__WW_BOTH __nv_fp8_storage_t __nv_cvt_halfraw_to_fp8(__half_raw x, __nv_saturation_t saturate, __nv_fp8_interpretation_t kind) {
    return __warpwave::to_fp8((float)__half(x), saturate == __NV_SATFINITE, kind);
}
__WW_BOTH __nv_fp8_storage_t __nv_cvt_bfloat16raw_to_fp8(__nv_bfloat16_raw x, __nv_saturation_t saturate, __nv_fp8_interpretation_t kind) {
    return __warpwave::to_fp8((float)__nv_bfloat16(x), saturate == __NV_SATFINITE, kind);
}
__WW_BOTH __nv_fp8x2_storage_t __nv_cvt_float2_to_fp8x2(float2 x, __nv_saturation_t saturate, __nv_fp8_interpretation_t kind) {
    return (unsigned short)(__nv_cvt_float_to_fp8(x.x, saturate, kind) | __nv_cvt_float_to_fp8(x.y, saturate, kind) << 8);
}
// Every fp8 value is a half.
__WW_BOTH __half_raw __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t x, __nv_fp8_interpretation_t kind) {
    return __half(kind == __NV_E4M3 ? __warpwave::from_fp8<__warpwave::e4m3>(x) : __warpwave::from_fp8<__warpwave::e5m2>(x));
}
__WW_BOTH __half2_raw __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t x, __nv_fp8_interpretation_t kind) {
    unsigned int low = __nv_cvt_fp8_to_halfraw((unsigned char)x, kind).x, high = __nv_cvt_fp8_to_halfraw((unsigned char)(x >> 8), kind).x;
    return __builtin_bit_cast(__half2_raw, high << 16 | low);
}

#define __WW_FP8(name, format)                                                                                                     \
    struct name {                                                                                                                  \
        __nv_fp8_storage_t __x;                                                                                                    \
        name() = default;                                                                                                          \
        __host__ __device__ explicit name(float x) : __x(__warpwave::to_fp8<__warpwave::format>(x, true)) {}                       \
        __host__ __device__ explicit name(double x) : __x(__warpwave::to_fp8<__warpwave::format>(x, true)) {}                      \
        __host__ __device__ explicit name(__half x) : __x(__warpwave::to_fp8<__warpwave::format>((float)x, true)) {}               \
        __host__ __device__ explicit name(__nv_bfloat16 x) : __x(__warpwave::to_fp8<__warpwave::format>((float)x, true)) {}        \
        __host__ __device__ explicit name(int x) : __x(__warpwave::to_fp8<__warpwave::format>((double)x, true)) {}                 \
        __host__ __device__ explicit name(unsigned int x) : __x(__warpwave::to_fp8<__warpwave::format>((double)x, true)) {}        \
        __host__ __device__ explicit name(short x) : __x(__warpwave::to_fp8<__warpwave::format>((double)x, true)) {}               \
        __host__ __device__ explicit name(unsigned short x) : __x(__warpwave::to_fp8<__warpwave::format>((double)x, true)) {}      \
        __host__ __device__ explicit name(long x) : __x(__warpwave::to_fp8<__warpwave::format>((double)x, true)) {}                \
        __host__ __device__ explicit name(unsigned long x) : __x(__warpwave::to_fp8<__warpwave::format>((double)x, true)) {}       \
        __host__ __device__ explicit name(long long x) : __x(__warpwave::to_fp8<__warpwave::format>((double)x, true)) {}           \
        __host__ __device__ explicit name(unsigned long long x) : __x(__warpwave::to_fp8<__warpwave::format>((double)x, true)) {}  \
        __host__ __device__ explicit operator float() const { return __warpwave::from_fp8<__warpwave::format>(__x); }              \
        __host__ __device__ explicit operator double() const { return (double)(float)*this; }                                      \
        __host__ __device__ explicit operator __half() const { return __half((float)*this); }                                      \
        __host__ __device__ explicit operator __nv_bfloat16() const { return __nv_bfloat16((float)*this); }                        \
        __host__ __device__ explicit operator int() const { return (int)(float)*this; }                                            \
        __host__ __device__ explicit operator unsigned int() const { return (unsigned int)(float)*this; }                          \
        __host__ __device__ explicit operator short() const { return (short)(float)*this; }                                        \
        __host__ __device__ explicit operator unsigned short() const { return (unsigned short)(float)*this; }                      \
        __host__ __device__ explicit operator long() const { return (long)(float)*this; }                                          \
        __host__ __device__ explicit operator unsigned long() const { return (unsigned long)(float)*this; }                        \
        __host__ __device__ explicit operator long long() const { return (long long)(float)*this; }                                \
        __host__ __device__ explicit operator unsigned long long() const { return (unsigned long long)(float)*this; }              \
        __host__ __device__ explicit operator signed char() const { return (signed char)(float)*this; }                            \
        __host__ __device__ explicit operator unsigned char() const { return (unsigned char)(float)*this; }                        \
        __host__ __device__ explicit operator bool() const { return (__x & 0x7f) != 0; }                                           \
    };
__WW_FP8(__nv_fp8_e4m3, e4m3)
__WW_FP8(__nv_fp8_e5m2, e5m2)
#undef __WW_FP8
