// __nv_bfloat16 and __nv_bfloat162 for AMD, under the names of CUDA's header.
//
// A bfloat16 is the upper half of a float. Arithmetic is done in float and rounded to nearest even, on every GPU alike.
#pragma once
#ifdef __clang__
#pragma clang system_header
#endif

struct __nv_bfloat16_raw { unsigned short x; };
struct __nv_bfloat162_raw { unsigned short x, y; };

namespace __warpwave {
__WW_BOTH float bf16_to_float(unsigned short bits) { return __builtin_bit_cast(float, (unsigned int)bits << 16); }
__WW_BOTH unsigned short float_to_bf16(float value) {
    unsigned int bits = __builtin_bit_cast(unsigned int, value);
    // A NaN stays one even where its upper half is all zeros.
    if (value != value) return 0x7fff;
    return (unsigned short)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
// Rounded once: the float on the way is cut towards zero, and what it lost shows as an odd last bit. Rounded to nearest it could land
// in the middle of two bfloat16s, and on the wrong one then.
__WW_BOTH unsigned short double_to_bf16(double value) {
    float near = (float)value;
    double lost = value - (double)near;
    if (lost == 0.0 || value != value || value - value != 0.0) return float_to_bf16(near);
    unsigned int bits = __builtin_bit_cast(unsigned int, near);
    bool beyond = (lost < 0.0) == (value > 0.0);
    return float_to_bf16(__builtin_bit_cast(float, (beyond ? bits - 1u : bits) | 1u));
}
// Of more than 53 bits the last 11 count together.
__WW_BOTH unsigned short integer_to_bf16(unsigned long long size, bool negative) {
    double value = (double)size;
    if (size >> 53 != 0) value = (double)(size >> 11 | (unsigned long long)((size & 0x7ffu) != 0)) * 2048.0;
    return double_to_bf16(negative ? -value : value);
}
__WW_BOTH unsigned short integer_to_bf16(long long value) {
    return integer_to_bf16(value < 0 ? 0ull - (unsigned long long)value : (unsigned long long)value, value < 0);
}
} // namespace __warpwave

struct __nv_bfloat16 {
    unsigned short __bits;

    __nv_bfloat16() = default;
    __host__ __device__ __nv_bfloat16(float value) : __bits(__warpwave::float_to_bf16(value)) {}
    __host__ __device__ __nv_bfloat16(double value) : __bits(__warpwave::double_to_bf16(value)) {}
    __host__ __device__ __nv_bfloat16(int value) : __bits(__warpwave::double_to_bf16((double)value)) {}
    __host__ __device__ __nv_bfloat16(unsigned int value) : __bits(__warpwave::double_to_bf16((double)value)) {}
    __host__ __device__ __nv_bfloat16(long value) : __bits(__warpwave::integer_to_bf16((long long)value)) {}
    __host__ __device__ __nv_bfloat16(unsigned long value) : __bits(__warpwave::integer_to_bf16((unsigned long long)value, false)) {}
    __host__ __device__ __nv_bfloat16(long long value) : __bits(__warpwave::integer_to_bf16(value)) {}
    __host__ __device__ __nv_bfloat16(unsigned long long value) : __bits(__warpwave::integer_to_bf16(value, false)) {}
    __host__ __device__ __nv_bfloat16(short value) : __bits(__warpwave::float_to_bf16((float)value)) {}
    __host__ __device__ __nv_bfloat16(unsigned short value) : __bits(__warpwave::float_to_bf16((float)value)) {}
    __host__ __device__ __nv_bfloat16(const __nv_bfloat16_raw &raw) : __bits(raw.x) {}
    __host__ __device__ operator float() const { return __warpwave::bf16_to_float(__bits); }
    __host__ __device__ operator __nv_bfloat16_raw() const { return __nv_bfloat16_raw{__bits}; }
    __host__ __device__ explicit operator double() const { return (double)(float)*this; }
    __host__ __device__ explicit operator int() const { return (int)(float)*this; }
    __host__ __device__ explicit operator unsigned int() const { return (unsigned int)(float)*this; }
    __host__ __device__ explicit operator long long() const { return (long long)(float)*this; }
    __host__ __device__ explicit operator unsigned long long() const { return (unsigned long long)(float)*this; }
    __host__ __device__ explicit operator short() const { return (short)(float)*this; }
    __host__ __device__ explicit operator unsigned short() const { return (unsigned short)(float)*this; }
    __host__ __device__ explicit operator signed char() const { return (signed char)(float)*this; }
    __host__ __device__ explicit operator unsigned char() const { return (unsigned char)(float)*this; }
    __host__ __device__ explicit operator bool() const { return (float)*this != 0.0f; }
};
typedef __nv_bfloat16 nv_bfloat16;

struct __attribute__((aligned(4))) __nv_bfloat162 {
    __nv_bfloat16 x, y;

    __nv_bfloat162() = default;
    __host__ __device__ __nv_bfloat162(const __nv_bfloat16 &x, const __nv_bfloat16 &y) : x(x), y(y) {}
    __host__ __device__ __nv_bfloat162(const __nv_bfloat162_raw &raw) : x(__nv_bfloat16_raw{raw.x}), y(__nv_bfloat16_raw{raw.y}) {}
    __host__ __device__ operator __nv_bfloat162_raw() const { return __nv_bfloat162_raw{x.__bits, y.__bits}; }
};
typedef __nv_bfloat162 nv_bfloat162;

// Operators
#define __WW_BF16_OPERATOR(op)                                                                                                     \
    __WW_BOTH __nv_bfloat16 operator op(const __nv_bfloat16 &a, const __nv_bfloat16 &b) {                                          \
        return __nv_bfloat16((float)a op(float) b);                                                                                \
    }                                                                                                                              \
    __WW_BOTH __nv_bfloat16 &operator op##=(__nv_bfloat16 &a, const __nv_bfloat16 &b) { return a = a op b; }                       \
    __WW_BOTH __nv_bfloat162 operator op(const __nv_bfloat162 &a, const __nv_bfloat162 &b) {                                       \
        return __nv_bfloat162(a.x op b.x, a.y op b.y);                                                                             \
    }                                                                                                                              \
    __WW_BOTH __nv_bfloat162 &operator op##=(__nv_bfloat162 &a, const __nv_bfloat162 &b) { return a = a op b; }
__WW_BF16_OPERATOR(+) __WW_BF16_OPERATOR(-) __WW_BF16_OPERATOR(*) __WW_BF16_OPERATOR(/)
#undef __WW_BF16_OPERATOR
__WW_BOTH __nv_bfloat16 operator+(const __nv_bfloat16 &a) { return a; }
__WW_BOTH __nv_bfloat16 operator-(const __nv_bfloat16 &a) { return __nv_bfloat16_raw{(unsigned short)(a.__bits ^ 0x8000u)}; }
__WW_BOTH __nv_bfloat162 operator-(const __nv_bfloat162 &a) { return __nv_bfloat162(-a.x, -a.y); }
#define __WW_BF16_COMPARE(op)                                                                                                      \
    __WW_BOTH bool operator op(const __nv_bfloat16 &a, const __nv_bfloat16 &b) { return (float)a op(float) b; }                    \
    __WW_BOTH bool operator op(const __nv_bfloat162 &a, const __nv_bfloat162 &b) { return a.x op b.x && a.y op b.y; }
__WW_BF16_COMPARE(==) __WW_BF16_COMPARE(!=) __WW_BF16_COMPARE(<) __WW_BF16_COMPARE(<=) __WW_BF16_COMPARE(>) __WW_BF16_COMPARE(>=)
#undef __WW_BF16_COMPARE

// Conversions
__WW_BOTH float __bfloat162float(__nv_bfloat16 a) { return (float)a; }
__WW_BOTH __nv_bfloat16 __float2bfloat16(float a) { return __nv_bfloat16(a); }
__WW_BOTH __nv_bfloat16 __float2bfloat16_rn(float a) { return __nv_bfloat16(a); }
__WW_BOTH __nv_bfloat16 __float2bfloat16_rz(float a) {
    return __nv_bfloat16_raw{a != a ? (unsigned short)0x7fff : (unsigned short)(__builtin_bit_cast(unsigned int, a) >> 16)};
}
__WW_BOTH __nv_bfloat16 __double2bfloat16(double a) { return __nv_bfloat16(a); }
__WW_BOTH __nv_bfloat16 __int2bfloat16_rn(int a) { return __nv_bfloat16(a); }
__WW_BOTH __nv_bfloat16 __uint2bfloat16_rn(unsigned int a) { return __nv_bfloat16(a); }
__WW_BOTH int __bfloat162int_rn(__nv_bfloat16 a) { return __float2int_rn((float)a); }
__WW_BOTH int __bfloat162int_rz(__nv_bfloat16 a) { return __float2int_rz((float)a); }
__WW_BOTH unsigned int __bfloat162uint_rn(__nv_bfloat16 a) { return __float2uint_rn((float)a); }
__WW_BOTH unsigned int __bfloat162uint_rz(__nv_bfloat16 a) { return __float2uint_rz((float)a); }
__WW_BOTH __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return __nv_bfloat162(x, y); }
__WW_BOTH __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return __nv_bfloat162(x, y); }
__WW_BOTH __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 a) { return __nv_bfloat162(a, a); }
__WW_BOTH __nv_bfloat162 __float2bfloat162_rn(float a) { return __nv_bfloat162(__nv_bfloat16(a), __nv_bfloat16(a)); }
__WW_BOTH __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return __nv_bfloat162(__nv_bfloat16(x), __nv_bfloat16(y)); }
__WW_BOTH __nv_bfloat162 __float22bfloat162_rn(float2 a) { return __floats2bfloat162_rn(a.x, a.y); }
__WW_BOTH float2 __bfloat1622float2(__nv_bfloat162 a) { return make_float2((float)a.x, (float)a.y); }
__WW_BOTH float __low2float(__nv_bfloat162 a) { return (float)a.x; }
__WW_BOTH float __high2float(__nv_bfloat162 a) { return (float)a.y; }
__WW_BOTH __nv_bfloat16 __low2bfloat16(__nv_bfloat162 a) { return a.x; }
__WW_BOTH __nv_bfloat16 __high2bfloat16(__nv_bfloat162 a) { return a.y; }
__WW_BOTH __nv_bfloat162 __low2bfloat162(__nv_bfloat162 a) { return __nv_bfloat162(a.x, a.x); }
__WW_BOTH __nv_bfloat162 __high2bfloat162(__nv_bfloat162 a) { return __nv_bfloat162(a.y, a.y); }
__WW_BOTH __nv_bfloat162 __lowhigh2highlow(__nv_bfloat162 a) { return __nv_bfloat162(a.y, a.x); }
__WW_BOTH unsigned short __bfloat16_as_ushort(__nv_bfloat16 a) { return a.__bits; }
__WW_BOTH short __bfloat16_as_short(__nv_bfloat16 a) { return (short)a.__bits; }
__WW_BOTH __nv_bfloat16 __ushort_as_bfloat16(unsigned short a) { return __nv_bfloat16_raw{a}; }
__WW_BOTH __nv_bfloat16 __short_as_bfloat16(short a) { return __nv_bfloat16_raw{(unsigned short)a}; }

// Arithmetic and comparison under their function names
#define __WW_BF16_ARITHMETIC(name, op)                                                                                             \
    __WW_BOTH __nv_bfloat16 name(__nv_bfloat16 a, __nv_bfloat16 b) { return a op b; }                                              \
    __WW_BOTH __nv_bfloat162 name##2(__nv_bfloat162 a, __nv_bfloat162 b) { return a op b; }
__WW_BF16_ARITHMETIC(__hadd, +) __WW_BF16_ARITHMETIC(__hsub, -) __WW_BF16_ARITHMETIC(__hmul, *)
#undef __WW_BF16_ARITHMETIC
__WW_BOTH __nv_bfloat16 __hdiv(__nv_bfloat16 a, __nv_bfloat16 b) { return a / b; }
__WW_BOTH __nv_bfloat162 __h2div(__nv_bfloat162 a, __nv_bfloat162 b) { return a / b; }
__WW_BOTH __nv_bfloat16 __hneg(__nv_bfloat16 a) { return -a; }
__WW_BOTH __nv_bfloat162 __hneg2(__nv_bfloat162 a) { return -a; }
__WW_BOTH __nv_bfloat16 __habs(__nv_bfloat16 a) { return __nv_bfloat16_raw{(unsigned short)(a.__bits & 0x7fffu)}; }
__WW_BOTH __nv_bfloat162 __habs2(__nv_bfloat162 a) { return __nv_bfloat162(__habs(a.x), __habs(a.y)); }
__WW_BOTH __nv_bfloat16 __hfma(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) {
    return __nv_bfloat16(__builtin_fmaf((float)a, (float)b, (float)c));
}
__WW_BOTH __nv_bfloat162 __hfma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) {
    return __nv_bfloat162(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y));
}
__WW_OVERRIDABLE __nv_bfloat16 __hmax(__nv_bfloat16 a, __nv_bfloat16 b) { return a != a ? b : b != b ? a : a > b ? a : b; }
__WW_OVERRIDABLE __nv_bfloat16 __hmin(__nv_bfloat16 a, __nv_bfloat16 b) { return a != a ? b : b != b ? a : a < b ? a : b; }
__WW_OVERRIDABLE __nv_bfloat16 __hmax_nan(__nv_bfloat16 a, __nv_bfloat16 b) { return a != a ? a : b != b ? b : a > b ? a : b; }
__WW_OVERRIDABLE __nv_bfloat16 __hmin_nan(__nv_bfloat16 a, __nv_bfloat16 b) { return a != a ? a : b != b ? b : a < b ? a : b; }
__WW_OVERRIDABLE __nv_bfloat162 __hmax2(__nv_bfloat162 a, __nv_bfloat162 b) { return __nv_bfloat162(__hmax(a.x, b.x), __hmax(a.y, b.y)); }
__WW_OVERRIDABLE __nv_bfloat162 __hmin2(__nv_bfloat162 a, __nv_bfloat162 b) { return __nv_bfloat162(__hmin(a.x, b.x), __hmin(a.y, b.y)); }
#define __WW_BF16_TEST(name, op)                                                                                                   \
    __WW_BOTH bool __h##name(__nv_bfloat16 a, __nv_bfloat16 b) { return a op b; }                                                  \
    __WW_BOTH bool __hb##name##2(__nv_bfloat162 a, __nv_bfloat162 b) { return a op b; }
__WW_BF16_TEST(eq, ==) __WW_BF16_TEST(ne, !=) __WW_BF16_TEST(lt, <) __WW_BF16_TEST(le, <=) __WW_BF16_TEST(gt, >) __WW_BF16_TEST(ge, >=)
#undef __WW_BF16_TEST
__WW_BOTH bool __hisnan(__nv_bfloat16 a) { return (a.__bits & 0x7fffu) > 0x7f80u; }
__WW_BOTH int __hisinf(__nv_bfloat16 a) { return a.__bits == 0x7f80 ? 1 : a.__bits == 0xff80 ? -1 : 0; }

// Functions
#define __WW_BF16_FUNCTION(name, expression)                                                                                       \
    __WW_DEVICE __nv_bfloat16 h##name(__nv_bfloat16 a) {                                                                           \
        float x = (float)a;                                                                                                        \
        return __nv_bfloat16(expression);                                                                                          \
    }                                                                                                                              \
    __WW_DEVICE __nv_bfloat162 h2##name(__nv_bfloat162 a) { return __nv_bfloat162(h##name(a.x), h##name(a.y)); }
__WW_BF16_FUNCTION(exp, expf(x)) __WW_BF16_FUNCTION(exp2, exp2f(x)) __WW_BF16_FUNCTION(exp10, exp10f(x))
__WW_BF16_FUNCTION(log, logf(x)) __WW_BF16_FUNCTION(log2, log2f(x)) __WW_BF16_FUNCTION(log10, log10f(x))
__WW_BF16_FUNCTION(sin, sinf(x)) __WW_BF16_FUNCTION(cos, cosf(x)) __WW_BF16_FUNCTION(tanh, tanhf(x))
__WW_BF16_FUNCTION(sqrt, sqrtf(x)) __WW_BF16_FUNCTION(rsqrt, rsqrtf(x)) __WW_BF16_FUNCTION(rcp, 1.0f / x)
__WW_BF16_FUNCTION(ceil, ceilf(x)) __WW_BF16_FUNCTION(floor, floorf(x)) __WW_BF16_FUNCTION(trunc, truncf(x)) __WW_BF16_FUNCTION(rint, rintf(x))
#undef __WW_BF16_FUNCTION

// Shuffles, atomics
#define __WW_BF16_SHUFFLE(type)                                                                                                    \
    template <class M> __WW_DEVICE type __shfl_sync(M, type v, int source, int width = warpSize) {                                 \
        return __warpwave::shuffle(v, source, width);                                                                              \
    }                                                                                                                              \
    template <class M> __WW_DEVICE type __shfl_up_sync(M, type v, unsigned int delta, int width = warpSize) {                      \
        return __warpwave::shuffle_up(v, delta, width);                                                                            \
    }                                                                                                                              \
    template <class M> __WW_DEVICE type __shfl_down_sync(M, type v, unsigned int delta, int width = warpSize) {                    \
        return __warpwave::shuffle_down(v, delta, width);                                                                          \
    }                                                                                                                              \
    template <class M> __WW_DEVICE type __shfl_xor_sync(M, type v, int lane_mask, int width = warpSize) {                          \
        return __warpwave::shuffle_xor(v, lane_mask, width);                                                                       \
    }
__WW_BF16_SHUFFLE(__nv_bfloat16)
__WW_BF16_SHUFFLE(__nv_bfloat162)
#undef __WW_BF16_SHUFFLE

__WW_OVERRIDABLE __nv_bfloat16 atomicAdd(__nv_bfloat16 *address, __nv_bfloat16 value) {
    return __ushort_as_bfloat16(__warpwave::atomic_update(
        (unsigned short *)address, [=](unsigned short old) { return (__ushort_as_bfloat16(old) + value).__bits; }));
}
__WW_OVERRIDABLE __nv_bfloat162 atomicAdd(__nv_bfloat162 *address, __nv_bfloat162 value) {
    return __builtin_bit_cast(__nv_bfloat162, __warpwave::atomic_update((unsigned int *)address, [=](unsigned int old) {
        return __builtin_bit_cast(unsigned int, __builtin_bit_cast(__nv_bfloat162, old) + value);
    }));
}
