// __half and __half2 for AMD, under the names of CUDA's header.
//
// A half is clang's _Float16, which every GPU since gfx8 computes with directly. Conversions round to nearest unless named otherwise.
#pragma once
#ifdef __clang__
#pragma clang system_header
#endif

struct __half_raw { unsigned short x; };
struct __half2_raw { unsigned short x, y; };

struct __half {
    _Float16 __value;

    __half() = default;
    __host__ __device__ constexpr __half(_Float16 value) : __value(value) {}
    __host__ __device__ constexpr __half(float value) : __value((_Float16)value) {}
    __host__ __device__ constexpr __half(double value) : __value((_Float16)value) {}
    __host__ __device__ constexpr __half(int value) : __value((_Float16)value) {}
    __host__ __device__ constexpr __half(unsigned int value) : __value((_Float16)value) {}
    __host__ __device__ constexpr __half(long value) : __value((_Float16)value) {}
    __host__ __device__ constexpr __half(unsigned long value) : __value((_Float16)value) {}
    __host__ __device__ constexpr __half(long long value) : __value((_Float16)value) {}
    __host__ __device__ constexpr __half(unsigned long long value) : __value((_Float16)value) {}
    __host__ __device__ constexpr __half(short value) : __value((_Float16)value) {}
    __host__ __device__ constexpr __half(unsigned short value) : __value((_Float16)value) {}
    __host__ __device__ __half(const __half_raw &raw) : __value(__builtin_bit_cast(_Float16, raw.x)) {}
    __host__ __device__ constexpr operator float() const { return (float)__value; }
    __host__ __device__ operator __half_raw() const { return __half_raw{__builtin_bit_cast(unsigned short, __value)}; }
    __host__ __device__ explicit operator double() const { return (double)__value; }
    __host__ __device__ explicit operator int() const { return (int)__value; }
    __host__ __device__ explicit operator unsigned int() const { return (unsigned int)__value; }
    __host__ __device__ explicit operator long long() const { return (long long)__value; }
    __host__ __device__ explicit operator unsigned long long() const { return (unsigned long long)__value; }
    __host__ __device__ explicit operator short() const { return (short)__value; }
    __host__ __device__ explicit operator unsigned short() const { return (unsigned short)__value; }
    __host__ __device__ explicit operator signed char() const { return (signed char)__value; }
    __host__ __device__ explicit operator unsigned char() const { return (unsigned char)__value; }
    __host__ __device__ explicit operator bool() const { return __value != (_Float16)0; }
    __host__ __device__ __half &operator+=(const __half &other) { __value += other.__value; return *this; }
    __host__ __device__ __half &operator-=(const __half &other) { __value -= other.__value; return *this; }
    __host__ __device__ __half &operator*=(const __half &other) { __value *= other.__value; return *this; }
    __host__ __device__ __half &operator/=(const __half &other) { __value /= other.__value; return *this; }
    __host__ __device__ __half &operator++() { __value += (_Float16)1; return *this; }
    __host__ __device__ __half &operator--() { __value -= (_Float16)1; return *this; }
    __host__ __device__ __half operator++(int) { __half old = *this; ++*this; return old; }
    __host__ __device__ __half operator--(int) { __half old = *this; --*this; return old; }
};
typedef __half half;
typedef __half __nv_half;

struct __attribute__((aligned(4))) __half2 {
    __half x, y;

    __half2() = default;
    __host__ __device__ constexpr __half2(const __half &x, const __half &y) : x(x), y(y) {}
    __host__ __device__ explicit __half2(const __half &both) : x(both), y(both) {}
    __host__ __device__ __half2(const __half2_raw &raw) : x(__half_raw{raw.x}), y(__half_raw{raw.y}) {}
    __host__ __device__ operator __half2_raw() const { return __half2_raw{((__half_raw)x).x, ((__half_raw)y).x}; }
};
typedef __half2 half2;
typedef __half2 __nv_half2;

namespace __warpwave {
// Packed instructions work on clang's vector of two.
typedef _Float16 half2_vector __attribute__((ext_vector_type(2)));
__WW_BOTH half2_vector pack(__half2 v) { return half2_vector{v.x.__value, v.y.__value}; }
__WW_BOTH __half2 unpack(half2_vector v) { return __half2(__half(v.x), __half(v.y)); }
} // namespace __warpwave

// Operators
#define __WW_HALF_OPERATOR(op)                                                                                                     \
    __WW_BOTH __half operator op(const __half &a, const __half &b) { return __half((_Float16)(a.__value op b.__value)); }          \
    __WW_BOTH __half2 operator op(const __half2 &a, const __half2 &b) {                                                            \
        return __warpwave::unpack(__warpwave::pack(a) op __warpwave::pack(b));                                                     \
    }                                                                                                                              \
    __WW_BOTH __half2 &operator op##=(__half2 &a, const __half2 &b) { return a = a op b; }
__WW_HALF_OPERATOR(+) __WW_HALF_OPERATOR(-) __WW_HALF_OPERATOR(*) __WW_HALF_OPERATOR(/)
#undef __WW_HALF_OPERATOR
__WW_BOTH __half operator+(const __half &a) { return a; }
__WW_BOTH __half operator-(const __half &a) { return __half((_Float16)-a.__value); }
__WW_BOTH __half2 operator-(const __half2 &a) { return __warpwave::unpack(-__warpwave::pack(a)); }
#define __WW_HALF_COMPARE(op)                                                                                                      \
    __WW_BOTH bool operator op(const __half &a, const __half &b) { return a.__value op b.__value; }                                \
    __WW_BOTH bool operator op(const __half2 &a, const __half2 &b) { return a.x op b.x && a.y op b.y; }
__WW_HALF_COMPARE(==) __WW_HALF_COMPARE(!=) __WW_HALF_COMPARE(<) __WW_HALF_COMPARE(<=) __WW_HALF_COMPARE(>) __WW_HALF_COMPARE(>=)
#undef __WW_HALF_COMPARE

// Conversions
__WW_BOTH float __half2float(__half a) { return (float)a.__value; }
__WW_BOTH __half __float2half(float a) { return __half((_Float16)a); }
__WW_BOTH __half __float2half_rn(float a) { return __half((_Float16)a); }
__WW_BOTH __half __double2half(double a) { return __half((_Float16)a); }
__WW_BOTH __half2 make_half2(__half x, __half y) { return __half2(x, y); }
__WW_BOTH __half2 __halves2half2(__half x, __half y) { return __half2(x, y); }
__WW_BOTH __half2 __half2half2(__half a) { return __half2(a, a); }
__WW_BOTH __half2 __float2half2_rn(float a) { return __half2(__half(a), __half(a)); }
__WW_BOTH __half2 __floats2half2_rn(float x, float y) { return __half2(__half(x), __half(y)); }
__WW_BOTH __half2 __float22half2_rn(float2 a) { return __half2(__half(a.x), __half(a.y)); }
__WW_BOTH float2 __half22float2(__half2 a) { return make_float2((float)a.x, (float)a.y); }
__WW_BOTH float __low2float(__half2 a) { return (float)a.x; }
__WW_BOTH float __high2float(__half2 a) { return (float)a.y; }
__WW_BOTH __half __low2half(__half2 a) { return a.x; }
__WW_BOTH __half __high2half(__half2 a) { return a.y; }
__WW_BOTH __half2 __low2half2(__half2 a) { return __half2(a.x, a.x); }
__WW_BOTH __half2 __high2half2(__half2 a) { return __half2(a.y, a.y); }
__WW_BOTH __half2 __lows2half2(__half2 a, __half2 b) { return __half2(a.x, b.x); }
__WW_BOTH __half2 __highs2half2(__half2 a, __half2 b) { return __half2(a.y, b.y); }
__WW_BOTH __half2 __lowhigh2highlow(__half2 a) { return __half2(a.y, a.x); }
__WW_BOTH unsigned short __half_as_ushort(__half a) { return __builtin_bit_cast(unsigned short, a.__value); }
__WW_BOTH short __half_as_short(__half a) { return __builtin_bit_cast(short, a.__value); }
__WW_BOTH __half __ushort_as_half(unsigned short a) { return __half(__builtin_bit_cast(_Float16, a)); }
__WW_BOTH __half __short_as_half(short a) { return __half(__builtin_bit_cast(_Float16, a)); }
__WW_BOTH __half __int2half_rn(int a) { return __half((_Float16)a); }
__WW_BOTH __half __uint2half_rn(unsigned int a) { return __half((_Float16)a); }
__WW_BOTH __half __short2half_rn(short a) { return __half((_Float16)a); }
__WW_BOTH __half __ushort2half_rn(unsigned short a) { return __half((_Float16)a); }
__WW_BOTH __half __ll2half_rn(long long a) { return __half((_Float16)a); }
__WW_BOTH __half __ull2half_rn(unsigned long long a) { return __half((_Float16)a); }
#define __WW_HALF_ROUND(suffix, mode)                                                                                              \
    __WW_BOTH int __half2int_##suffix(__half a) { return __warpwave::to_int(__warpwave::round_to((float)a, mode)); }               \
    __WW_BOTH unsigned int __half2uint_##suffix(__half a) { return __warpwave::to_uint(__warpwave::round_to((float)a, mode)); }    \
    __WW_BOTH long long __half2ll_##suffix(__half a) { return __warpwave::to_ll(__warpwave::round_to((float)a, mode)); }           \
    __WW_BOTH short __half2short_##suffix(__half a) {                                                                              \
        return (short)max(min(__warpwave::to_int(__warpwave::round_to((float)a, mode)), 32767), -32768);                           \
    }                                                                                                                              \
    __WW_BOTH unsigned short __half2ushort_##suffix(__half a) {                                                                    \
        return (unsigned short)min(__warpwave::to_uint(__warpwave::round_to((float)a, mode)), 65535u);                             \
    }
__WW_HALF_ROUND(rn, 0) __WW_HALF_ROUND(rz, 1) __WW_HALF_ROUND(ru, 2) __WW_HALF_ROUND(rd, 3)
#undef __WW_HALF_ROUND

// Arithmetic. The `_rn` forms are those the compiler must not fuse.
#define __WW_HALF_ARITHMETIC(name, op)                                                                                             \
    __WW_BOTH __half name(__half a, __half b) { return a op b; }                                                                   \
    __WW_BOTH __half2 name##2(__half2 a, __half2 b) { return a op b; }                                                             \
    __WW_BOTH __half name##_rn(__half a, __half b) {                                                                               \
        _Pragma("clang fp contract(off)") return __half((_Float16)(a.__value op b.__value));                                       \
    }                                                                                                                              \
    __WW_BOTH __half2 name##2_rn(__half2 a, __half2 b) {                                                                           \
        _Pragma("clang fp contract(off)") return __warpwave::unpack(__warpwave::pack(a) op __warpwave::pack(b));                   \
    }                                                                                                                              \
    __WW_BOTH __half name##_sat(__half a, __half b) {                                                                              \
        return __half(__builtin_fminf16(__builtin_fmaxf16(a.__value op b.__value, (_Float16)0), (_Float16)1));                     \
    }
__WW_HALF_ARITHMETIC(__hadd, +) __WW_HALF_ARITHMETIC(__hsub, -) __WW_HALF_ARITHMETIC(__hmul, *)
#undef __WW_HALF_ARITHMETIC
__WW_BOTH __half __hdiv(__half a, __half b) { return a / b; }
__WW_BOTH __half2 __h2div(__half2 a, __half2 b) { return a / b; }
__WW_BOTH __half __hneg(__half a) { return -a; }
__WW_BOTH __half2 __hneg2(__half2 a) { return -a; }
__WW_BOTH __half __habs(__half a) { return __half(__builtin_fabsf16(a.__value)); }
__WW_BOTH __half2 __habs2(__half2 a) { return __half2(__habs(a.x), __habs(a.y)); }
__WW_BOTH __half __hfma(__half a, __half b, __half c) { return __half(__builtin_fmaf16(a.__value, b.__value, c.__value)); }
__WW_BOTH __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
    return __warpwave::unpack(__builtin_elementwise_fma(__warpwave::pack(a), __warpwave::pack(b), __warpwave::pack(c)));
}
__WW_BOTH __half __hfma_relu(__half a, __half b, __half c) {
    return __half(__builtin_fmaxf16(__builtin_fmaf16(a.__value, b.__value, c.__value), (_Float16)0));
}
// Maximum and minimum; a NaN gives way to a number, and in the `_nan` forms it stays.
__WW_OVERRIDABLE __half __hmax(__half a, __half b) { return __half(__builtin_fmaxf16(a.__value, b.__value)); }
__WW_OVERRIDABLE __half __hmin(__half a, __half b) { return __half(__builtin_fminf16(a.__value, b.__value)); }
__WW_OVERRIDABLE __half __hmax_nan(__half a, __half b) { return a != a ? a : b != b ? b : a > b ? a : b; }
__WW_OVERRIDABLE __half __hmin_nan(__half a, __half b) { return a != a ? a : b != b ? b : a < b ? a : b; }
__WW_OVERRIDABLE __half2 __hmax2(__half2 a, __half2 b) {
    return __warpwave::unpack(__builtin_elementwise_max(__warpwave::pack(a), __warpwave::pack(b)));
}
__WW_OVERRIDABLE __half2 __hmin2(__half2 a, __half2 b) {
    return __warpwave::unpack(__builtin_elementwise_min(__warpwave::pack(a), __warpwave::pack(b)));
}

// Comparisons: false with a NaN, or true in the `u` forms; of pairs, both (`hb…2`) or each (`h…2`).
#define __WW_HALF_TEST(name, op)                                                                                                   \
    __WW_BOTH bool __h##name(__half a, __half b) { return a op b; }                                                                \
    __WW_BOTH bool __h##name##u(__half a, __half b) { return a != a || b != b || a op b; }                                         \
    __WW_BOTH bool __hb##name##2(__half2 a, __half2 b) { return a.x op b.x && a.y op b.y; }                                        \
    __WW_BOTH __half2 __h##name##2(__half2 a, __half2 b) {                                                                         \
        return __half2(__half(a.x op b.x ? 1.0f : 0.0f), __half(a.y op b.y ? 1.0f : 0.0f));                                        \
    }
__WW_HALF_TEST(eq, ==) __WW_HALF_TEST(ne, !=) __WW_HALF_TEST(lt, <) __WW_HALF_TEST(le, <=) __WW_HALF_TEST(gt, >) __WW_HALF_TEST(ge, >=)
#undef __WW_HALF_TEST
__WW_BOTH bool __hisnan(__half a) { return a.__value != a.__value; }
__WW_BOTH int __hisinf(__half a) {
    unsigned short bits = __half_as_ushort(a);
    return bits == 0x7c00 ? 1 : bits == 0xfc00 ? -1 : 0;
}
__WW_BOTH __half2 __hisnan2(__half2 a) { return __half2(__half(__hisnan(a.x) ? 1.0f : 0.0f), __half(__hisnan(a.y) ? 1.0f : 0.0f)); }

// Functions: computed in float, whose error is far below a half's last place.
#define __WW_HALF_FUNCTION(name, expression)                                                                                       \
    __WW_DEVICE __half h##name(__half a) {                                                                                         \
        float x = (float)a;                                                                                                        \
        return __half(expression);                                                                                                 \
    }                                                                                                                              \
    __WW_DEVICE __half2 h2##name(__half2 a) { return __half2(h##name(a.x), h##name(a.y)); }
__WW_HALF_FUNCTION(exp, expf(x)) __WW_HALF_FUNCTION(exp2, exp2f(x)) __WW_HALF_FUNCTION(exp10, exp10f(x))
__WW_HALF_FUNCTION(log, logf(x)) __WW_HALF_FUNCTION(log2, log2f(x)) __WW_HALF_FUNCTION(log10, log10f(x))
__WW_HALF_FUNCTION(sin, sinf(x)) __WW_HALF_FUNCTION(cos, cosf(x)) __WW_HALF_FUNCTION(tanh, tanhf(x))
__WW_HALF_FUNCTION(sqrt, sqrtf(x)) __WW_HALF_FUNCTION(rsqrt, rsqrtf(x)) __WW_HALF_FUNCTION(rcp, 1.0f / x)
__WW_HALF_FUNCTION(ceil, ceilf(x)) __WW_HALF_FUNCTION(floor, floorf(x)) __WW_HALF_FUNCTION(trunc, truncf(x)) __WW_HALF_FUNCTION(rint, rintf(x))
#undef __WW_HALF_FUNCTION

// Shuffles, loads, atomics
#define __WW_HALF_SHUFFLE(type)                                                                                                    \
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
__WW_HALF_SHUFFLE(__half)
__WW_HALF_SHUFFLE(__half2)
#undef __WW_HALF_SHUFFLE

__WW_OVERRIDABLE __half atomicAdd(__half *address, __half value) {
    return __ushort_as_half(__warpwave::atomic_update(
        (unsigned short *)address, [=](unsigned short old) { return __half_as_ushort(__ushort_as_half(old) + value); }));
}
__WW_OVERRIDABLE __half2 atomicAdd(__half2 *address, __half2 value) {
    return __builtin_bit_cast(__half2, __warpwave::atomic_update((unsigned int *)address, [=](unsigned int old) {
        return __builtin_bit_cast(unsigned int, __builtin_bit_cast(__half2, old) + value);
    }));
}
