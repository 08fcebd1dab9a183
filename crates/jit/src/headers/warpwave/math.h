// CUDA's math functions, from the compiler's own operations where they are exact and from AMD's device library elsewhere.
#pragma once

// f(float), f(double), f(integer) -> double, and the C name with an f at its end.
#define __WW_INTEGER1(name)                                                                                                        \
    template <class T> __WW_BOTH typename __warpwave::enable_if<__warpwave::is_integer<T>::value, double>::type name(T x) {        \
        return name((double)x);                                                                                                    \
    }
#define __WW_MATH1(name, single, twice)                                                                                            \
    __WW_BOTH float name##f(float x) { return single(x); }                                                                         \
    __WW_BOTH float name(float x) { return single(x); }                                                                            \
    __WW_BOTH double name(double x) { return twice(x); }                                                                           \
    __WW_INTEGER1(name)
#define __WW_OCML(name, theirs) __WW_MATH1(name, __ocml_##theirs##_f32, __ocml_##theirs##_f64)
#define __WW_BUILTIN(name) __WW_MATH1(name, __builtin_##name##f, __builtin_##name)

__WW_OCML(acos, acos) __WW_OCML(acosh, acosh) __WW_OCML(asin, asin) __WW_OCML(asinh, asinh) __WW_OCML(atan, atan)
__WW_OCML(atanh, atanh) __WW_OCML(cbrt, cbrt) __WW_OCML(cos, cos) __WW_OCML(cosh, cosh) __WW_OCML(cospi, cospi)
__WW_OCML(cyl_bessel_i0, i0) __WW_OCML(cyl_bessel_i1, i1) __WW_OCML(erf, erf) __WW_OCML(erfc, erfc) __WW_OCML(erfcinv, erfcinv)
__WW_OCML(erfcx, erfcx) __WW_OCML(erfinv, erfinv) __WW_OCML(exp, exp) __WW_OCML(exp10, exp10) __WW_OCML(exp2, exp2)
__WW_OCML(expm1, expm1) __WW_OCML(j0, j0) __WW_OCML(j1, j1) __WW_OCML(lgamma, lgamma) __WW_OCML(log, log)
__WW_OCML(log10, log10) __WW_OCML(log1p, log1p) __WW_OCML(log2, log2) __WW_OCML(logb, logb) __WW_OCML(normcdf, ncdf)
__WW_OCML(normcdfinv, ncdfinv) __WW_OCML(rcbrt, rcbrt) __WW_OCML(rsqrt, rsqrt) __WW_OCML(sin, sin) __WW_OCML(sinh, sinh)
__WW_OCML(sinpi, sinpi) __WW_OCML(tan, tan) __WW_OCML(tanh, tanh) __WW_OCML(tgamma, tgamma) __WW_OCML(y0, y0) __WW_OCML(y1, y1)
__WW_BUILTIN(ceil) __WW_BUILTIN(fabs) __WW_BUILTIN(floor) __WW_BUILTIN(nearbyint) __WW_BUILTIN(rint) __WW_BUILTIN(round)
__WW_BUILTIN(sqrt) __WW_BUILTIN(trunc)

// f(a, b): mixed arguments are computed in double, as the C++ library does.
#define __WW_MATH2(name, single, twice)                                                                                            \
    __WW_BOTH float name##f(float x, float y) { return single(x, y); }                                                             \
    __WW_BOTH float name(float x, float y) { return single(x, y); }                                                                \
    __WW_BOTH double name(double x, double y) { return twice(x, y); }                                                              \
    template <class A, class B>                                                                                                    \
    __WW_BOTH typename __warpwave::enable_if<__warpwave::is_arithmetic<A>::value && __warpwave::is_arithmetic<B>::value &&         \
                                                 !__warpwave::is_same<A, B>::value,                                                \
                                             double>::type                                                                         \
    name(A x, B y) {                                                                                                               \
        return name((double)x, (double)y);                                                                                         \
    }                                                                                                                              \
    template <class A> __WW_BOTH typename __warpwave::enable_if<__warpwave::is_integer<A>::value, double>::type name(A x, A y) {   \
        return name((double)x, (double)y);                                                                                         \
    }
#define __WW_OCML2(name) __WW_MATH2(name, __ocml_##name##_f32, __ocml_##name##_f64)
#define __WW_BUILTIN2(name) __WW_MATH2(name, __builtin_##name##f, __builtin_##name)
__WW_OCML2(atan2) __WW_OCML2(fdim) __WW_OCML2(fmod) __WW_OCML2(hypot) __WW_OCML2(nextafter) __WW_OCML2(pow) __WW_OCML2(remainder)
__WW_OCML2(rhypot) __WW_BUILTIN2(copysign) __WW_BUILTIN2(fmax) __WW_BUILTIN2(fmin)

__WW_BOTH float pow(float x, int y) { return __ocml_pown_f32(x, y); }
__WW_BOTH double pow(double x, int y) { return __ocml_pown_f64(x, y); }
__WW_BOTH float powif(float x, int y) { return __ocml_pown_f32(x, y); }
__WW_BOTH double powi(double x, int y) { return __ocml_pown_f64(x, y); }
__WW_BOTH float fdividef(float x, float y) { return x / y; }
__WW_BOTH double fdivide(double x, double y) { return x / y; }

__WW_BOTH float fmaf(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
__WW_BOTH float fma(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
__WW_BOTH double fma(double x, double y, double z) { return __builtin_fma(x, y, z); }

// Results through pointers: the device library writes to private memory, and the caller's pointer may lead anywhere.
#define __WW_OUT(type, F, bits)                                                                                                    \
    __WW_DEVICE type F(frexp)(type x, int *exponent) {                                                                             \
        int out;                                                                                                                   \
        type result = __ocml_frexp_##bits(x, (__WW_PRIVATE(int) *)&out);                                                           \
        *exponent = out;                                                                                                           \
        return result;                                                                                                             \
    }                                                                                                                              \
    __WW_DEVICE type F(modf)(type x, type *whole) {                                                                                \
        type out;                                                                                                                  \
        type result = __ocml_modf_##bits(x, (__WW_PRIVATE(type) *)&out);                                                           \
        *whole = out;                                                                                                              \
        return result;                                                                                                             \
    }                                                                                                                              \
    __WW_DEVICE type F(remquo)(type x, type y, int *quotient) {                                                                    \
        int out;                                                                                                                   \
        type result = __ocml_remquo_##bits(x, y, (__WW_PRIVATE(int) *)&out);                                                       \
        *quotient = out;                                                                                                           \
        return result;                                                                                                             \
    }                                                                                                                              \
    __WW_DEVICE void F(sincos)(type x, type *sine, type *cosine) {                                                                 \
        type out;                                                                                                                  \
        *sine = __ocml_sincos_##bits(x, (__WW_PRIVATE(type) *)&out);                                                               \
        *cosine = out;                                                                                                             \
    }                                                                                                                              \
    __WW_DEVICE void F(sincospi)(type x, type *sine, type *cosine) {                                                               \
        type out;                                                                                                                  \
        *sine = __ocml_sincospi_##bits(x, (__WW_PRIVATE(type) *)&out);                                                             \
        *cosine = out;                                                                                                             \
    }                                                                                                                              \
    __WW_DEVICE int F(ilogb)(type x) { return __ocml_ilogb_##bits(x); }                                                            \
    __WW_DEVICE type F(ldexp)(type x, int exponent) { return __ocml_ldexp_##bits(x, exponent); }                                   \
    __WW_DEVICE type F(scalbn)(type x, int exponent) { return __ocml_ldexp_##bits(x, exponent); }                                  \
    __WW_DEVICE type F(scalbln)(type x, long exponent) {                                                                           \
        return __ocml_ldexp_##bits(x, exponent > 4000 ? 4000 : exponent < -4000 ? -4000 : (int)exponent);                          \
    }                                                                                                                              \
    __WW_DEVICE long F(lrint)(type x) { return (long)__warpwave::to_ll(__warpwave::round_to(x, 0)); }                              \
    __WW_DEVICE long long F(llrint)(type x) { return __warpwave::to_ll(__warpwave::round_to(x, 0)); }                              \
    __WW_DEVICE long F(lround)(type x) { return (long)__warpwave::to_ll(round(x)); }                                               \
    __WW_DEVICE long long F(llround)(type x) { return __warpwave::to_ll(round(x)); }
#define __WW_SAME_NAME(name) name
#define __WW_F_NAME(name) name##f
__WW_OUT(float, __WW_SAME_NAME, f32)
__WW_OUT(float, __WW_F_NAME, f32)
__WW_OUT(double, __WW_SAME_NAME, f64)
#undef __WW_OUT

#define __WW_NORM(type, F, bits)                                                                                                   \
    __WW_DEVICE type F(norm3d)(type a, type b, type c) { return __ocml_len3_##bits(a, b, c); }                                     \
    __WW_DEVICE type F(norm4d)(type a, type b, type c, type d) { return __ocml_len4_##bits(a, b, c, d); }                          \
    __WW_DEVICE type F(rnorm3d)(type a, type b, type c) { return __ocml_rlen3_##bits(a, b, c); }                                   \
    __WW_DEVICE type F(rnorm4d)(type a, type b, type c, type d) { return __ocml_rlen4_##bits(a, b, c, d); }                        \
    __WW_DEVICE type F(norm)(int count, const type *values) {                                                                      \
        type sum = 0;                                                                                                              \
        for (int i = 0; i < count; i++) sum = __ocml_hypot_##bits(sum, values[i]);                                                 \
        return sum;                                                                                                                \
    }                                                                                                                              \
    __WW_DEVICE type F(rnorm)(int count, const type *values) { return 1 / F(norm)(count, values); }                                \
    /* Upward recurrence; the order is far below the argument in the range where it is accurate, else Miller's downward one. */    \
    __WW_DEVICE type F(jn)(int n, type x) {                                                                                        \
        type sign = n < 0 && (n & 1) ? -1 : 1;                                                                                     \
        n = n < 0 ? -n : n;                                                                                                        \
        if (n == 0) return __ocml_j0_##bits(x);                                                                                    \
        if (n == 1) return sign * __ocml_j1_##bits(x);                                                                             \
        if (x == 0) return 0;                                                                                                      \
        type size = fabs(x);                                                                                                       \
        if (size > n) {                                                                                                            \
            type before = __ocml_j0_##bits(x), now = __ocml_j1_##bits(x);                                                          \
            for (int k = 1; k < n; k++) { type next = 2 * k / x * now - before; before = now; now = next; }                        \
            return sign * now;                                                                                                     \
        }                                                                                                                          \
        int start = 2 * ((n + (int)sqrt((type)(60 * n)) + 20) / 2);                                                                \
        type above = 0, now = 1, wanted = 0, sum = 0;                                                                              \
        for (int k = start; k > 0; k--) {                                                                                          \
            type below = 2 * k / x * now - above;                                                                                  \
            above = now;                                                                                                           \
            now = below;                                                                                                           \
            if (fabs(now) > (type)1e10) { now *= (type)1e-10; above *= (type)1e-10; wanted *= (type)1e-10; sum *= (type)1e-10; }   \
            if (k - 1 == n) wanted = now;                                                                                          \
            if (((k - 1) & 1) == 0) sum += (k - 1) == 0 ? now : 2 * now;                                                           \
        }                                                                                                                          \
        return sign * (wanted / sum);                                                                                              \
    }                                                                                                                              \
    __WW_DEVICE type F(yn)(int n, type x) {                                                                                        \
        type sign = n < 0 && (n & 1) ? -1 : 1;                                                                                     \
        n = n < 0 ? -n : n;                                                                                                        \
        type before = __ocml_y0_##bits(x);                                                                                         \
        if (n == 0) return before;                                                                                                 \
        type now = __ocml_y1_##bits(x);                                                                                            \
        for (int k = 1; k < n; k++) { type next = 2 * k / x * now - before; before = now; now = next; }                            \
        return sign * now;                                                                                                         \
    }
__WW_NORM(float, __WW_F_NAME, f32)
__WW_NORM(double, __WW_SAME_NAME, f64)
#undef __WW_NORM

__WW_BOTH float nanf(const char *) { return __builtin_nanf(""); }
__WW_BOTH double nan(const char *) { return __builtin_nan(""); }

// Classification. C names some of these as macros; here they are functions, as in CUDA.
#define __WW_CLASS(name, result, expression)                                                                                       \
    __WW_BOTH result name(float x) { return expression; }                                                                          \
    __WW_BOTH result name(double x) { return expression; }                                                                         \
    template <class T> __WW_BOTH typename __warpwave::enable_if<__warpwave::is_integer<T>::value, result>::type name(T x) {        \
        return name((double)x);                                                                                                    \
    }
__WW_CLASS(isnan, bool, __builtin_isnan(x))
__WW_CLASS(isinf, bool, __builtin_isinf(x))
__WW_CLASS(isfinite, bool, __builtin_isfinite(x))
__WW_CLASS(isnormal, bool, __builtin_isnormal(x))
__WW_CLASS(signbit, bool, __builtin_signbit(x))
#undef __WW_CLASS

// min, max and abs. Unlike the C++ library's templates these take mixed integer types, and C's rules choose the common one.
#define __WW_MINMAX(type)                                                                                                          \
    __WW_BOTH constexpr type min(type a, type b) { return b < a ? b : a; }                                                         \
    __WW_BOTH constexpr type max(type a, type b) { return a < b ? b : a; }
__WW_MINMAX(int)
__WW_MINMAX(unsigned int)
__WW_MINMAX(long)
__WW_MINMAX(unsigned long)
__WW_MINMAX(long long)
__WW_MINMAX(unsigned long long)
#undef __WW_MINMAX
__WW_BOTH float min(float a, float b) { return __builtin_fminf(a, b); }
__WW_BOTH float max(float a, float b) { return __builtin_fmaxf(a, b); }
__WW_BOTH double min(double a, double b) { return __builtin_fmin(a, b); }
__WW_BOTH double max(double a, double b) { return __builtin_fmax(a, b); }
namespace __warpwave {
template <class A, class B>
using mixed = typename enable_if<is_arithmetic<A>::value && is_arithmetic<B>::value && !is_same<A, B>::value,
                                 decltype(A() + B())>::type;
}
template <class A, class B> __WW_BOTH __warpwave::mixed<A, B> min(A a, B b) {
    typedef __warpwave::mixed<A, B> common;
    return min((common)a, (common)b);
}
template <class A, class B> __WW_BOTH __warpwave::mixed<A, B> max(A a, B b) {
    typedef __warpwave::mixed<A, B> common;
    return max((common)a, (common)b);
}
__WW_BOTH unsigned int umin(unsigned int a, unsigned int b) { return min(a, b); }
__WW_BOTH unsigned int umax(unsigned int a, unsigned int b) { return max(a, b); }
__WW_BOTH long long llmin(long long a, long long b) { return min(a, b); }
__WW_BOTH long long llmax(long long a, long long b) { return max(a, b); }
__WW_BOTH unsigned long long ullmin(unsigned long long a, unsigned long long b) { return min(a, b); }
__WW_BOTH unsigned long long ullmax(unsigned long long a, unsigned long long b) { return max(a, b); }
__WW_BOTH int abs(int x) { return x < 0 ? -x : x; }
__WW_BOTH long abs(long x) { return x < 0 ? -x : x; }
__WW_BOTH long long abs(long long x) { return x < 0 ? -x : x; }
__WW_BOTH long labs(long x) { return x < 0 ? -x : x; }
__WW_BOTH long long llabs(long long x) { return x < 0 ? -x : x; }
__WW_BOTH float abs(float x) { return __builtin_fabsf(x); }
__WW_BOTH double abs(double x) { return __builtin_fabs(x); }
