// Conversions with a rounding mode, and the bits of one type as another.
//
// As in CUDA a value out of range becomes the nearest that fits, and a NaN becomes 0 (32 bits) or the lowest value (64 bits).
#pragma once

__WW_BOTH float __int_as_float(int x) { return __warpwave::bit_cast<float>(x); }
__WW_BOTH float __uint_as_float(unsigned int x) { return __warpwave::bit_cast<float>(x); }
__WW_BOTH int __float_as_int(float x) { return __warpwave::bit_cast<int>(x); }
__WW_BOTH unsigned int __float_as_uint(float x) { return __warpwave::bit_cast<unsigned int>(x); }
__WW_BOTH double __longlong_as_double(long long x) { return __warpwave::bit_cast<double>(x); }
__WW_BOTH long long __double_as_longlong(double x) { return __warpwave::bit_cast<long long>(x); }
__WW_BOTH int __double2loint(double x) { return (int)__warpwave::bit_cast<long long>(x); }
__WW_BOTH int __double2hiint(double x) { return (int)(__warpwave::bit_cast<long long>(x) >> 32); }
__WW_BOTH double __hiloint2double(int hi, int lo) {
    return __warpwave::bit_cast<double>(((unsigned long long)(unsigned int)hi << 32) | (unsigned int)lo);
}

namespace __warpwave {
// The limits are the first values outside of each type's range; both are exact in float and double.
template <class F> __WW_BOTH int to_int(F x) {
    return x >= (F)2147483648.0 ? 2147483647 : x < (F)-2147483648.0 ? -2147483647 - 1 : x == x ? (int)x : 0;
}
template <class F> __WW_BOTH unsigned int to_uint(F x) {
    return x >= (F)4294967296.0 ? 4294967295u : x > (F)0 ? (unsigned int)x : 0u;
}
template <class F> __WW_BOTH long long to_ll(F x) {
    const long long lowest = -9223372036854775807ll - 1;
    return x >= (F)9223372036854775808.0 ? 9223372036854775807ll : x >= (F)-9223372036854775808.0 ? (long long)x : lowest;
}
template <class F> __WW_BOTH unsigned long long to_ull(F x) {
    return x >= (F)18446744073709551616.0 ? 18446744073709551615ull
           : x > (F)0                    ? (unsigned long long)x
           : x <= (F)0                   ? 0ull
                                         : 9223372036854775808ull;
}
__WW_BOTH float round_to(float x, int mode) {
    return mode == 0 ? __builtin_rintf(x) : mode == 1 ? __builtin_truncf(x) : mode == 2 ? __builtin_ceilf(x) : __builtin_floorf(x);
}
__WW_BOTH double round_to(double x, int mode) {
    return mode == 0 ? __builtin_rint(x) : mode == 1 ? __builtin_trunc(x) : mode == 2 ? __builtin_ceil(x) : __builtin_floor(x);
}
// One step towards zero (the value is not zero), or away from it.
__WW_BOTH float step(float x, int by) { return bit_cast<float>(bit_cast<int>(x) + by); }

// The nearest float, moved one step when it lies on the wrong side of the exact value.
template <class Wide> __WW_BOTH float narrow(Wide exact, float nearest, double back, int mode) {
    if (mode == 0 || back == (double)exact) return nearest;
    bool above = back > (double)exact;
    bool want_above = mode == 2 || (mode == 1 && (double)exact < 0);
    if (above == want_above) return nearest;
    if (nearest == 0.0f) return want_above ? __builtin_copysignf(1.401298464e-45f, 1.0f) : -1.401298464e-45f;
    return step(nearest, (nearest > 0) == want_above ? 1 : -1);
}
} // namespace __warpwave

#define __WW_TO_INTEGER(suffix, mode)                                                                                              \
    __WW_BOTH int __float2int_##suffix(float x) { return __warpwave::to_int(__warpwave::round_to(x, mode)); }                      \
    __WW_BOTH unsigned int __float2uint_##suffix(float x) { return __warpwave::to_uint(__warpwave::round_to(x, mode)); }           \
    __WW_BOTH long long __float2ll_##suffix(float x) { return __warpwave::to_ll(__warpwave::round_to(x, mode)); }                  \
    __WW_BOTH unsigned long long __float2ull_##suffix(float x) { return __warpwave::to_ull(__warpwave::round_to(x, mode)); }       \
    __WW_BOTH int __double2int_##suffix(double x) { return __warpwave::to_int(__warpwave::round_to(x, mode)); }                    \
    __WW_BOTH unsigned int __double2uint_##suffix(double x) { return __warpwave::to_uint(__warpwave::round_to(x, mode)); }         \
    __WW_BOTH long long __double2ll_##suffix(double x) { return __warpwave::to_ll(__warpwave::round_to(x, mode)); }                \
    __WW_BOTH unsigned long long __double2ull_##suffix(double x) { return __warpwave::to_ull(__warpwave::round_to(x, mode)); }     \
    __WW_BOTH float __double2float_##suffix(double x) {                                                                            \
        float nearest = (float)x;                                                                                                  \
        return __warpwave::narrow(x, nearest, (double)nearest, mode);                                                              \
    }                                                                                                                              \
    __WW_BOTH float __int2float_##suffix(int x) {                                                                                  \
        float nearest = (float)x;                                                                                                  \
        return __warpwave::narrow(x, nearest, (double)nearest, mode);                                                              \
    }                                                                                                                              \
    __WW_BOTH float __uint2float_##suffix(unsigned int x) {                                                                        \
        float nearest = (float)x;                                                                                                  \
        return __warpwave::narrow(x, nearest, (double)nearest, mode);                                                              \
    }
__WW_TO_INTEGER(rn, 0)
__WW_TO_INTEGER(rz, 1)
__WW_TO_INTEGER(ru, 2)
__WW_TO_INTEGER(rd, 3)
#undef __WW_TO_INTEGER

__WW_BOTH double __int2double_rn(int x) { return (double)x; }
__WW_BOTH double __uint2double_rn(unsigned int x) { return (double)x; }
__WW_BOTH double __ll2double_rn(long long x) { return (double)x; }
__WW_BOTH double __ull2double_rn(unsigned long long x) { return (double)x; }
__WW_BOTH float __ll2float_rn(long long x) { return (float)x; }
__WW_BOTH float __ull2float_rn(unsigned long long x) { return (float)x; }
