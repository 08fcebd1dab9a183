// Math functions. `Exact` are the compiler's or as accurate; `Fast` are for types of at most 11 bits of mantissa, whose rounding hides
// relative errors of 1e-6.

#pragma once

#include "common/types.cuh"

#if defined(__AMDGCN__)
// A product that is never contracted to an FMA.
__device__ inline f32 rounded_product(f32 x, f32 y) {
#pragma clang fp contract(off)
    return x * y;
}
__device__ inline f64 rounded_product(f64 x, f64 y) {
#pragma clang fp contract(off)
    return x * y;
}
__device__ inline f32 fast_exp2(f32 x) { return exp2(x); }
__device__ inline f32 approx_log2(f32 x) { return log2(x); }
__device__ inline f32 fast_log2(f32 x) { return log2(x); }
__device__ inline f32 fast_sqrt(f32 x) { return sqrt(x); }
__device__ inline f32 fast_divide(f32 x, f32 by) { return x / by; }
__device__ inline f32 fast_reciprocal(f32 x) { return 1 / x; }
__device__ inline f32 normal_reciprocal(f32 x) { return 1 / x; }
#else
__device__ inline f32 rounded_product(f32 x, f32 y) { return __fmul_rn(x, y); }
__device__ inline f64 rounded_product(f64 x, f64 y) { return __dmul_rn(x, y); }
// Squares the exponential of half the argument: the instruction flushes subnormal results.
__device__ inline f32 fast_exp2(f32 x) {
    const f32 y = exp2_approx(0.5f * x);
    return y * y;
}
// Absolute accuracy only: few relative digits for results near 0.
__device__ inline f32 approx_log2(f32 x) {
    f32 y;
    asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
// Near 1 the instruction is inaccurate, so a series is used.
__device__ inline f32 fast_log2(f32 x) {
    const f32 f = x - 1;
    f32 series = fma(f, 0.21111965f, -0.24546066f);
    series = fma(f, series, 0.28849077f);
    series = fma(f, series, -0.36063439f);
    series = fma(f, series, 0.4808985f);
    series = fma(f, series, -0.72134757f);
    series = fma(f, series, 1.442695f);
    return fabs(f) < 0.125f ? f * series : approx_log2(x);
}
__device__ inline f32 fast_sqrt(f32 x) {
    f32 y;
    asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
// For divisors that are neither subnormal nor huge.
__device__ inline f32 fast_divide(f32 x, f32 by) { return __fdividef(x, by); }
__device__ inline f32 fast_reciprocal(f32 x) {
    f32 y;
    asm("rcp.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
// For arguments that are neither subnormal nor huge.
__device__ inline f32 normal_reciprocal(f32 x) {
    f32 y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#endif

__device__ inline f32 fast_exp(f32 x) { return fast_exp2(x * 1.442695041f); }

// Decomposes a finite positive number into 2^exponent · m with m = (2 + u) / (2 - u) in [√½, √2]; v = u², and `tail` is the rest of log2(m)
// after its first term, over u.
struct Parts {
    f32 exponent, f, by, u, v, tail;

    __device__ Parts(f32 size) {
        const bool tiny = size < 1.17549435e-38f;
        const u32 bits = __float_as_uint(tiny ? size * 16777216.0f : size), whole = (bits - 0x3f3504f3u) & 0xff800000u;
        // The exponent as a float, by integer addition to 1.5 · 2^23.
        exponent = __uint_as_float(0x4b400000u + (u32)((i32)whole >> 23)) - (tiny ? 12582936.0f : 12582912.0f);
        const f32 m = __uint_as_float(bits - whole);
        f = m - 1;
        by = normal_reciprocal(fma(m, 0.5f, 0.5f));
        u = rounded_product(f, by);
        v = u * u;
        tail = v * fma(v, fma(v, 0.0033668596f, 0.018023564f), 0.12022478f);
    }
};

// |x|^y by exp2(y · log2|x|), with the logarithm and the product in two floats each; accurate to a few ulp. |x| is finite and not 0, and
// |y| <= POW_MAX_EXPONENT, so that the product's low part stays small.
#define POW_MAX_EXPONENT 16384.0f
__device__ inline f32 power_of_size(f32 size, f32 y) {
    const Parts parts(size);
    const f32 u = parts.u, exponent = parts.exponent;
    // The rounding error of u.
    const f32 rest = fma(u, -0.5f * parts.f, parts.f - u) * parts.by;
    const f32 high = rounded_product(u, 1.44269502f);
    f32 low = fma(u, 1.92596303e-8f, fma(u, 1.44269502f, -high));
    low = fma(u, parts.tail, fma(rest, 1.44269502f, low));
    const f32 most = high + low, log = exponent + most;
    low = (exponent - log) + most + (high - most + low);
    // Squares the root, as in fast_exp2.
    const f32 half = 0.5f * y, power = half * log;
    const f32 root = exp2_approx(power) * fma(fma(half, low, fma(half, log, -power)), 0.69314718f, 1.0f);
    return root * root;
}
// The same for |y| <= POW_SHORT_EXPONENT, where log2(m) in one float is accurate enough.
#define POW_SHORT_EXPONENT 4.0f
__device__ inline f32 short_power_of_size(f32 size, f32 y) {
    const Parts parts(size);
    const f32 half = 0.5f * y, most = parts.u * (parts.tail + 1.44269502f), whole = rounded_product(half, parts.exponent);
    const f32 rest = fma(half, most, fma(half, parts.exponent, -whole)), power = whole + rest;
    const f32 root = exp2_approx(power) * fma(whole - power + rest, 0.69314718f, 1.0f);
    return root * root;
}

// erfc(z) / 2 without the factor exp(-z²), for z >= 0, as a polynomial of t = 1 / (1 + z / 2).
__device__ inline f32 half_erfc(f32 z) {
    const f32 t = fast_divide(1.0f, fma(z, 0.5f, 1.0f));
    f32 p = fma(t, -0.059172314f * 0.5f, 0.28508016f * 0.5f);
    p = fma(t, p, -0.48824802f * 0.5f);
    p = fma(t, p, 0.27926877f * 0.5f);
    p = fma(t, p, -0.027455285f * 0.5f);
    p = fma(t, p, 0.20303872f * 0.5f);
    p = fma(t, p, 0.24301462f * 0.5f);
    p = fma(t, p, 0.28238758f * 0.5f);
    p = fma(t, p, 0.28208572f * 0.5f);
    return t * p;
}

// The same with less accuracy.
__device__ inline f32 approx_half_erfc(f32 z) {
    const f32 t = fast_divide(1.0f, fma(z, 0.5f, 1.0f));
    f32 p = fma(t, 0.087496713f * 0.5f, -0.35425383f * 0.5f);
    p = fma(t, p, 0.38575912f * 0.5f);
    p = fma(t, p, 0.040332716f * 0.5f);
    p = fma(t, p, 0.28059325f * 0.5f);
    p = fma(t, p, 0.27775127f * 0.5f);
    p = fma(t, p, 0.28231925f * 0.5f);
    return t * p;
}

// Special cases of a power that depend only on the exponent (not 0, within POW_MAX_EXPONENT), computed once if it is uniform.
struct Exponent {
    f32 y, of_zero, of_infinity, lowest;
    u32 sign;

    __device__ Exponent(f32 y) : y(y) {
        // 2^23 + |y|: its last bit is the parity of an integer y.
        const f32 anchor = fabs(y) + 8388608.0f, infinity = __uint_as_float(0x7f800000u);
        const bool whole = anchor - 8388608.0f == fabs(y);
        of_zero = y > 0 ? 0.0f : infinity;
        of_infinity = y > 0 ? infinity : 0.0f;
        // Negative x needs an integer y, except -∞; an odd y keeps the sign.
        lowest = whole ? -infinity : 0.0f;
        sign = whole ? __float_as_uint(anchor) << 31 : 0;
    }
    __device__ f32 finished(f32 x, f32 power) const {
        const f32 size = fabs(x);
        power = x >= lowest ? power : __uint_as_float(0x7fffffffu);
        power = size == __uint_as_float(0x7f800000u) ? of_infinity : power;
        power = size == 0 ? of_zero : power;
        return __uint_as_float(__float_as_uint(power) | (__float_as_uint(x) & sign));
    }
    __device__ f32 of(f32 x) const { return finished(x, power_of_size(fabs(x), y)); }
    // For |y| <= POW_SHORT_EXPONENT.
    __device__ f32 short_of(f32 x) const { return finished(x, short_power_of_size(fabs(x), y)); }
    // For types of at most 11 bits of mantissa and |y| <= POW_FAST_EXPONENT: beyond it the logarithm is too inaccurate.
    __device__ f32 fast_of(f32 x) const {
        const f32 root = exp2_approx(0.5f * y * approx_log2(fabs(x))), power = root * root;
        const bool none = x < lowest && fabs(x) < __uint_as_float(0x7f800000u);
        return __uint_as_float((none ? 0x7fffffffu : __float_as_uint(power)) | (__float_as_uint(x) & sign));
    }
};
#define POW_FAST_EXPONENT 256.0f

struct Exact {
    template <class M> static __device__ M exp_of(M x) { return exp(x); }
    template <class M> static __device__ M log_of(M x) { return log(x); }
    template <class M> static __device__ M sin_of(M x) { return sin(x); }
    template <class M> static __device__ M cos_of(M x) { return cos(x); }
    template <class M> static __device__ M tanh_of(M x) { return tanh(x); }
    template <class M> static __device__ M sqrt_of(M x) { return sqrt(x); }
    template <class M> static __device__ M reciprocal(M x) { return 1 / x; }
    template <class M> static __device__ M erf_of(M x) { return erf(x); }
    static __device__ f64 pow_of(f64 x, f64 y) { return pow(x, y); }
    static __device__ f32 pow_of(f32 x, f32 y) { return fabs(y) <= POW_MAX_EXPONENT && y != 0 ? Exponent(y).of(x) : pow(x, y); }
    static __device__ f64 expm1_of(f64 x) { return expm1(x); }
    // For x <= 0.
    static __device__ f32 expm1_of(f32 x) {
        f32 p = fma(x, 0.00015950933f, 0.0013629779f);
        p = fma(x, p, 0.0083245877f);
        p = fma(x, p, 0.041665137f);
        p = fma(x, p, 0.16666654f);
        p = fma(x, p, 0.5f);
        p = fma(x, p, 1.0f);
        return x > -0.5f ? x * p : exp(x) - 1;
    }
    static __device__ f64 gelu_erf(f64 x) { return 0.5 * x * erfc(-0.70710678118654752440 * x); }
    static __device__ f32 gelu_erf(f32 x) {
        const f32 far = half_erfc(fabs(x) * 0.70710678f) * exp(-0.5f * x * x);
        return x * (x < 0 ? far : 1 - far);
    }
    // sigmoid(x) · factor. The exponential never overflows, and small results keep their relative accuracy.
    template <class M> static __device__ M sigmoid_times(M x, M factor) {
        const M e = exp(-fabs(x));
        return (x < 0 ? factor * e : factor) / (1 + e);
    }
};

struct Fast {
    static __device__ f32 exp_of(f32 x) { return fast_exp(x); }
    static __device__ f32 log_of(f32 x) { return fast_log2(x) * 0.69314718f; }
    static __device__ f32 sqrt_of(f32 x) { return fast_sqrt(x); }
    static __device__ f32 reciprocal(f32 x) { return fast_reciprocal(x); }
    // Reduces x by quarter turns and evaluates sine or cosine (`first` = 1) of the rest. Adding 1.5 · 2²³ rounds to an integer whose low
    // bits give the quadrant; GPUs add faster than they round and convert. Inaccurate for large x.
    static __device__ f32 sincos_of(f32 x, f32 first) {
        const f32 anchor = fma(x, 0.63661977f, 12582912.0f + first), quadrants = anchor - (12582912.0f + first);
        const f32 r = fma(quadrants, 4.3711388e-8f, fma(quadrants, -1.5707964f, x)), u = r * r;
        const int quarters = __float_as_int(anchor);
        f32 s = fma(u, -0.00019501822f, 0.0083320169f), c = fma(u, 2.4372679e-5f, -0.0013886529f);
        s = fma(u, s, -0.16666651f);
        s = fma(u, s, 1.0f) * r;
        c = fma(u, c, 0.041666612f);
        c = fma(u, c, -0.5f);
        c = fma(u, c, 1.0f);
        const f32 y = quarters & 1 ? c : s;
        return quarters & 2 ? -y : y;
    }
    static __device__ f32 sin_of(f32 x) { return fabs(x) < 50000.0f ? sincos_of(x, 0.0f) : sin(x); }
    static __device__ f32 cos_of(f32 x) { return fabs(x) < 50000.0f ? sincos_of(x, 1.0f) : cos(x); }
    static __device__ f32 tanh_of(f32 x) {
        const f32 u = x * x, e = fast_exp(-2 * fabs(x)), far = fast_divide(1 - e, 1 + e);
        f32 p = fma(u, 0.12841614f, -0.33321908f);
        p = fma(u, p, 0.99999958f);
        return fabs(x) < 0.25f ? x * p : copysign(far, x);
    }
    // 1 - 2^polynomial; near zero a polynomial avoids cancellation.
    static __device__ f32 erf_of(f32 x) {
        const f32 u = x * x, size = fmin(fabs(x), 4.2f);
        f32 q = fma(size, 0.0029809047f, -0.029733879f);
        q = fma(size, q, 0.14884801f);
        q = fma(size, q, 0.9184252f);
        q = fma(size, q, 1.6278996f);
        f32 p = fma(u, 0.11005749f, -0.37605363f);
        p = fma(u, p, 1.1283789f);
        const f32 y = fabs(x) < 0.26f ? x * p : copysign(1 - fast_exp2(-size * q), x);
        return x != x ? x : y;
    }
    static __device__ f32 pow_of(f32 x, f32 y) {
        const f32 size = fabs(x);
        f32 power = fast_exp2(y * approx_log2(size));
        if (size == 1) power = y != y ? y : 1.0f;
        if (x < 0) {
            const f32 half = 0.5f * y;
            if (floor(y) != y && size < __uint_as_float(0x7f800000u)) return __uint_as_float(0x7fffffffu);
            if (floor(y) == y && floor(half) != half) power = -power;
        } else if (x == 0 && floor(y) == y && floor(0.5f * y) != 0.5f * y) {
            power = copysign(power, x);
        }
        return y == 0 || x == 1 ? 1.0f : power;
    }
    // For x <= 0.
    static __device__ f32 expm1_of(f32 x) {
        f32 p = fma(x, 0.0067713172f, 0.041001596f);
        p = fma(x, p, 0.16654827f);
        p = fma(x, p, 0.49999252f);
        p = fma(x, p, 0.99999994f);
        return x > -0.5f ? x * p : fast_exp(x) - 1;
    }
    static __device__ f32 gelu_erf(f32 x) {
        const f32 far = approx_half_erfc(fabs(x) * 0.70710678f) * fast_exp(-0.5f * x * x);
        return x * (x < 0 ? far : 1 - far);
    }
    static __device__ f32 sigmoid_times(f32 x, f32 factor) {
        const f32 e = fast_exp(-fabs(x));
        return fast_divide(x < 0 ? factor * e : factor, 1 + e);
    }
};

template <class T> struct Functions : Exact {};
template <> struct Functions<f16> : Fast {};
template <> struct Functions<bf16> : Fast {};
template <> struct Functions<f8e4m3> : Fast {};
template <> struct Functions<f8e5m2> : Fast {};
