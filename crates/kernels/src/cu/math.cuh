// Functions of floats. `Exact` are the compiler's, or as near; `Quick` are for types of 11 bits and fewer, in whose rounding an error of
// a few parts in a million is lost.

#if defined(__AMDGCN__)
// Never made one with an addition: where the rounding is looked at.
__device__ inline f32 rounded_product(f32 x, f32 y) {
#pragma clang fp contract(off)
    return x * y;
}
__device__ inline f32 quick_exp2(f32 x) { return exp2(x); }
__device__ inline f32 coarse_log2(f32 x) { return log2(x); }
__device__ inline f32 quick_log2(f32 x) { return log2(x); }
__device__ inline f32 quick_sqrt(f32 x) { return sqrt(x); }
__device__ inline f32 quick_divide(f32 x, f32 by) { return x / by; }
__device__ inline f32 quick_reciprocal(f32 x) { return 1 / x; }
__device__ inline f32 near_reciprocal(f32 x) { return 1 / x; }
#else
__device__ inline f32 rounded_product(f32 x, f32 y) { return __fmul_rn(x, y); }
// The square of a root: the instruction alone has no results below the smallest normal number.
__device__ inline f32 quick_exp2(f32 x) {
    const f32 y = bare_exp2(0.5f * x);
    return y * y;
}
// Right to so many digits behind the point, which are few of a result near 0.
__device__ inline f32 coarse_log2(f32 x) {
    f32 y;
    asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
// Near 1 the instruction has few digits: there a series takes over.
__device__ inline f32 quick_log2(f32 x) {
    const f32 f = x - 1;
    f32 series = fma(f, 0.21111965f, -0.24546066f);
    series = fma(f, series, 0.28849077f);
    series = fma(f, series, -0.36063439f);
    series = fma(f, series, 0.4808985f);
    series = fma(f, series, -0.72134757f);
    series = fma(f, series, 1.442695f);
    return fabs(f) < 0.125f ? f * series : coarse_log2(x);
}
__device__ inline f32 quick_sqrt(f32 x) {
    f32 y;
    asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
// The divisor is neither tiny nor huge.
__device__ inline f32 quick_divide(f32 x, f32 by) { return __fdividef(x, by); }
__device__ inline f32 quick_reciprocal(f32 x) {
    f32 y;
    asm("rcp.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
// Of a number neither tiny nor huge.
__device__ inline f32 near_reciprocal(f32 x) {
    f32 y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#endif

__device__ inline f32 quick_exp(f32 x) { return quick_exp2(x * 1.442695041f); }

// A size that is neither 0 nor infinite: 2 to the power of `places`, times m = (2 + u) / (2 - u), from √½ to √2; v is u's square, and `tail`
// what m's logarithm has behind its first term, over u.
struct Parts {
    f32 places, f, by, u, v, tail;

    __device__ Parts(f32 size) {
        const bool tiny = size < 1.17549435e-38f;
        const u32 bits = __float_as_uint(tiny ? size * 16777216.0f : size), whole = (bits - 0x3f3504f3u) & 0xff800000u;
        // The exponent as a float: the last bits of one of 24, less what those bits stand for.
        places = __uint_as_float(0x4b400000u + (u32)((i32)whole >> 23)) - (tiny ? 12582936.0f : 12582912.0f);
        const f32 m = __uint_as_float(bits - whole);
        f = m - 1;
        by = near_reciprocal(fma(m, 0.5f, 0.5f));
        u = rounded_product(f, by);
        v = u * u;
        tail = v * fma(v, fma(v, 0.0033668596f, 0.018023564f), 0.12022478f);
    }
};

// A size to a power: 2 to the power of a product with a logarithm, both in two floats each; a few units off. It is neither 0 nor infinite,
// and the exponent within FAR, so that the product's second float stays small.
#define FAR 16384.0f
__device__ inline f32 power_of_size(f32 size, f32 y) {
    const Parts parts(size);
    const f32 u = parts.u, places = parts.places;
    // What u lacks.
    const f32 rest = fma(u, -0.5f * parts.f, parts.f - u) * parts.by;
    const f32 high = rounded_product(u, 1.44269502f);
    f32 low = fma(u, 1.92596303e-8f, fma(u, 1.44269502f, -high));
    low = fma(u, parts.tail, fma(rest, 1.44269502f, low));
    const f32 most = high + low, log = places + most;
    low = (places - log) + most + (high - most + low);
    // The square of a root, as above.
    const f32 half = 0.5f * y, power = half * log;
    const f32 root = bare_exp2(power) * fma(fma(half, low, fma(half, log, -power)), 0.69314718f, 1.0f);
    return root * root;
}
// The same for exponents within MODEST, where m's logarithm in one float is exact enough.
#define MODEST 4.0f
__device__ inline f32 modest_power_of_size(f32 size, f32 y) {
    const Parts parts(size);
    const f32 half = 0.5f * y, most = parts.u * (parts.tail + 1.44269502f), whole = rounded_product(half, parts.places);
    const f32 rest = fma(half, most, fma(half, parts.places, -whole)), power = whole + rest;
    const f32 root = bare_exp2(power) * fma(whole - power + rest, 0.69314718f, 1.0f);
    return root * root;
}

// Half of the complementary error function, e to the power of -z² aside: as a polynomial of t = 1 / (1 + z / 2), for z not below 0.
__device__ inline f32 half_erfc(f32 z) {
    const f32 t = quick_divide(1.0f, fma(z, 0.5f, 1.0f));
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

// The same with fewer digits.
__device__ inline f32 coarse_half_erfc(f32 z) {
    const f32 t = quick_divide(1.0f, fma(z, 0.5f, 1.0f));
    f32 p = fma(t, 0.087496713f * 0.5f, -0.35425383f * 0.5f);
    p = fma(t, p, 0.38575912f * 0.5f);
    p = fma(t, p, 0.040332716f * 0.5f);
    p = fma(t, p, 0.28059325f * 0.5f);
    p = fma(t, p, 0.27775127f * 0.5f);
    p = fma(t, p, 0.28231925f * 0.5f);
    return t * p;
}

// What an exponent within FAR, and not 0, says about special numbers: looked at once where it is the same for all.
struct Exponent {
    f32 y, of_nothing, of_infinity, lowest;
    u32 sign;

    __device__ Exponent(f32 y) : y(y) {
        // A float of 24 bits whose last is that of the whole number beside y.
        const f32 beside = fabs(y) + 8388608.0f, infinity = __uint_as_float(0x7f800000u);
        const bool whole = beside - 8388608.0f == fabs(y);
        of_nothing = y > 0 ? 0.0f : infinity;
        of_infinity = y > 0 ? infinity : 0.0f;
        // Less has no power, -∞ aside; an odd power keeps the sign.
        lowest = whole ? -infinity : 0.0f;
        sign = whole ? __float_as_uint(beside) << 31 : 0;
    }
    __device__ f32 finished(f32 x, f32 power) const {
        const f32 size = fabs(x);
        power = x >= lowest ? power : __uint_as_float(0x7fffffffu);
        power = size == __uint_as_float(0x7f800000u) ? of_infinity : power;
        power = size == 0 ? of_nothing : power;
        return __uint_as_float(__float_as_uint(power) | (__float_as_uint(x) & sign));
    }
    __device__ f32 of(f32 x) const { return finished(x, power_of_size(fabs(x), y)); }
    // For exponents within MODEST.
    __device__ f32 modest_of(f32 x) const { return finished(x, modest_power_of_size(fabs(x), y)); }
    // For types of 11 bits and fewer, and exponents within NEAR: beyond it the logarithm's digits do not suffice.
    __device__ f32 quick_of(f32 x) const {
        const f32 root = bare_exp2(0.5f * y * coarse_log2(fabs(x))), power = root * root;
        const bool none = x < lowest && fabs(x) < __uint_as_float(0x7f800000u);
        return __uint_as_float((none ? 0x7fffffffu : __float_as_uint(power)) | (__float_as_uint(x) & sign));
    }
};
#define NEAR 256.0f

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
    static __device__ f32 pow_of(f32 x, f32 y) { return fabs(y) <= FAR && y != 0 ? Exponent(y).of(x) : pow(x, y); }
    static __device__ f64 exp_less_1(f64 x) { return expm1(x); }
    // For x not above 0.
    static __device__ f32 exp_less_1(f32 x) {
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
    // x's sigmoid times something. The exponential never overflows, and is as exact where the result is small as elsewhere.
    template <class M> static __device__ M sigmoid_times(M x, M factor) {
        const M e = exp(-fabs(x));
        return (x < 0 ? factor * e : factor) / (1 + e);
    }
};

struct Quick {
    static __device__ f32 exp_of(f32 x) { return quick_exp(x); }
    static __device__ f32 log_of(f32 x) { return quick_log2(x) * 0.69314718f; }
    static __device__ f32 sqrt_of(f32 x) { return quick_sqrt(x); }
    static __device__ f32 reciprocal(f32 x) { return quick_reciprocal(x); }
    // Quarter turns away, and what is left of x. Far out the turns' digits do not suffice. Beside 1.5 · 2²³ a number has no digits behind the
    // point, and its last bits count, those of a turn for the cosine among them: GPUs round and convert slower than they add.
    static __device__ f32 turned(f32 x, f32 first) {
        const f32 beside = fma(x, 0.63661977f, 12582912.0f + first), turns = beside - (12582912.0f + first);
        const f32 r = fma(turns, 4.3711388e-8f, fma(turns, -1.5707964f, x)), u = r * r;
        const int quarters = __float_as_int(beside);
        f32 s = fma(u, -0.00019501822f, 0.0083320169f), c = fma(u, 2.4372679e-5f, -0.0013886529f);
        s = fma(u, s, -0.16666651f);
        s = fma(u, s, 1.0f) * r;
        c = fma(u, c, 0.041666612f);
        c = fma(u, c, -0.5f);
        c = fma(u, c, 1.0f);
        const f32 y = quarters & 1 ? c : s;
        return quarters & 2 ? -y : y;
    }
    static __device__ f32 sin_of(f32 x) { return fabs(x) < 50000.0f ? turned(x, 0.0f) : sin(x); }
    static __device__ f32 cos_of(f32 x) { return fabs(x) < 50000.0f ? turned(x, 1.0f) : cos(x); }
    static __device__ f32 tanh_of(f32 x) {
        const f32 u = x * x, e = quick_exp(-2 * fabs(x)), far = quick_divide(1 - e, 1 + e);
        f32 p = fma(u, 0.12841614f, -0.33321908f);
        p = fma(u, p, 0.99999958f);
        return fabs(x) < 0.25f ? x * p : copysign(far, x);
    }
    // One minus two to the power of a polynomial; near zero the difference would have no digits left.
    static __device__ f32 erf_of(f32 x) {
        const f32 u = x * x, size = fmin(fabs(x), 4.2f);
        f32 q = fma(size, 0.0029809047f, -0.029733879f);
        q = fma(size, q, 0.14884801f);
        q = fma(size, q, 0.9184252f);
        q = fma(size, q, 1.6278996f);
        f32 p = fma(u, 0.11005749f, -0.37605363f);
        p = fma(u, p, 1.1283789f);
        const f32 y = fabs(x) < 0.26f ? x * p : copysign(1 - quick_exp2(-size * q), x);
        return x != x ? x : y;
    }
    static __device__ f32 pow_of(f32 x, f32 y) {
        const f32 size = fabs(x);
        f32 power = quick_exp2(y * coarse_log2(size));
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
    // For x not above 0.
    static __device__ f32 exp_less_1(f32 x) {
        f32 p = fma(x, 0.0067713172f, 0.041001596f);
        p = fma(x, p, 0.16654827f);
        p = fma(x, p, 0.49999252f);
        p = fma(x, p, 0.99999994f);
        return x > -0.5f ? x * p : quick_exp(x) - 1;
    }
    static __device__ f32 gelu_erf(f32 x) {
        const f32 far = coarse_half_erfc(fabs(x) * 0.70710678f) * quick_exp(-0.5f * x * x);
        return x * (x < 0 ? far : 1 - far);
    }
    static __device__ f32 sigmoid_times(f32 x, f32 factor) {
        const f32 e = quick_exp(-fabs(x));
        return quick_divide(x < 0 ? factor * e : factor, 1 + e);
    }
};

template <class T> struct Functions : Exact {};
template <> struct Functions<f16> : Quick {};
template <> struct Functions<bf16> : Quick {};
template <> struct Functions<f8e4m3> : Quick {};
template <> struct Functions<f8e5m2> : Quick {};
