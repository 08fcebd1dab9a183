// Element types and conversions. Every conversion rounds once, to nearest even.
//
// Self-contained: NVRTC alone has no CUDA headers. f16, bf16 and fp8 are stored as bits and computed as f32. Stores to fp8 saturate
// (infinities too), like CUDA's own types.

#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef short i16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;
struct f16 { u16 bits; };
struct bf16 { u16 bits; };
struct f8e4m3 { u8 bits; };
struct f8e5m2 { u8 bits; };

// Lanes of a wave (warp).
#if defined(__AMDGCN__)
#define WAVE WARPWAVE_WAVE_SIZE
#else
#define WAVE 32
#endif
// The hardware instruction; it flushes subnormal results.
__device__ inline f32 exp2_approx(f32 x) {
#if !defined(__AMDGCN__)
    f32 y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#elif __has_builtin(__builtin_amdgcn_exp2f)
    return __builtin_amdgcn_exp2f(x);
#else
    // Older compilers lower this to the instruction.
    return __builtin_exp2f(x);
#endif
}
// A kernel's name: the program's name and a suffix.
#define PASTE(NAME, SUFFIX) NAME##SUFFIX
#define KERNEL_NAME(NAME, SUFFIX) PASTE(NAME, SUFFIX)

// Properties of a type; Math is the type it is computed in.
template <class T> struct Traits;
#define INTEGER_TRAITS(T, M, S, LO, HI, UPPER)                                                                                     \
    template <> struct Traits<T> {                                                                                                 \
        typedef M Math;                                                                                                            \
        static const bool INTEGER = true, SIGNED = S;                                                                              \
        static __device__ T lowest() { return (T)(LO); }                                                                           \
        static __device__ T highest() { return (T)(HI); }                                                                          \
        static __device__ f64 upper_bound() { return UPPER; }                                                                      \
    };
#define FLOAT_TRAITS(T, M, B)                                                                                                      \
    template <> struct Traits<T> {                                                                                                 \
        typedef M Math;                                                                                                            \
        static const bool INTEGER = false, SIGNED = true, IS_BF16 = B;                                                             \
    };
INTEGER_TRAITS(u8, u32, false, 0, 255, 256.0)
INTEGER_TRAITS(i16, i32, true, -32768, 32767, 32768.0)
INTEGER_TRAITS(i32, i32, true, -2147483647 - 1, 2147483647, 2147483648.0)
INTEGER_TRAITS(u32, u32, false, 0, 4294967295u, 4294967296.0)
INTEGER_TRAITS(i64, i64, true, -9223372036854775807ll - 1, 9223372036854775807ll, 9223372036854775808.0)
FLOAT_TRAITS(f16, f32, false)
FLOAT_TRAITS(bf16, f32, true)
FLOAT_TRAITS(f32, f32, false)
FLOAT_TRAITS(f64, f64, false)
FLOAT_TRAITS(f8e4m3, f32, false)
FLOAT_TRAITS(f8e5m2, f32, false)

// Converts to the Math type; exact.
__device__ inline u32 widen(u8 x) { return x; }
__device__ inline i32 widen(i16 x) { return x; }
__device__ inline i32 widen(i32 x) { return x; }
__device__ inline u32 widen(u32 x) { return x; }
__device__ inline i64 widen(i64 x) { return x; }
__device__ inline f32 widen(f32 x) { return x; }
__device__ inline f64 widen(f64 x) { return x; }
__device__ inline f32 widen(bf16 x) { return __uint_as_float((u32)x.bits << 16); }

#if defined(__AMDGCN__)
__device__ inline f32 widen(f16 x) { return (f32)__builtin_bit_cast(_Float16, x.bits); }
__device__ inline u16 to_f16(f32 x) { return __builtin_bit_cast(u16, (_Float16)x); }
#else
__device__ inline f32 widen(f16 x) {
    f32 value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(x.bits));
    return value;
}
__device__ inline u16 to_f16(f32 x) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}
#endif

__device__ inline u16 to_bf16(f32 x) {
#if !defined(__AMDGCN__) && __CUDA_ARCH__ >= 800
    u16 result;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result) : "f"(x));
    return result;
#else
    u32 bits = __float_as_uint(x);
    if (x != x) return (u16)(bits >> 16 | 0x40u);
    return (u16)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
#endif
}

// Hardware fp8 conversion: sm_89 since CUDA 12.1, sm_90 always.
#if !defined(__AMDGCN__) && (__CUDA_ARCH__ >= 900 || (__CUDA_ARCH__ >= 890 && __CUDACC_VER_MAJOR__ * 10 + __CUDACC_VER_MINOR__ >= 121))
#define F8_INSTRUCTIONS
#endif

// Converts to fp8, given mantissa bits, exponent bias and largest code.
template <int MANTISSA, int BIAS, u32 LARGEST> __device__ inline u8 to_f8(f32 x) {
    u32 bits = __float_as_uint(x), sign = bits >> 24 & 0x80u, size = bits & 0x7fffffffu, result;
    const int drop = 23 - MANTISSA;
    if (size >= (u32)(128 - BIAS) << 23) {
        result = size - ((u32)(127 - BIAS) << 23);
        result = (result + (1u << (drop - 1)) - 1 + (result >> drop & 1u)) >> drop;
        if (result > LARGEST) result = LARGEST;
    } else {
        // Adding this number aligns the last bit of the float with the smallest fp8 subnormal, so that the addition rounds correctly.
        const u32 anchor = (u32)(151 - BIAS - MANTISSA) << 23;
        result = __float_as_uint(__uint_as_float(size) + __uint_as_float(anchor)) - anchor;
    }
    return x != x ? 0x7f : (u8)(sign | result);
}
template <int MANTISSA, int BIAS> __device__ inline f32 from_f8(u8 x) {
    // Places the exponent, then fixes the bias by a multiplication, which handles subnormals too.
    u32 size = (x & 0x7fu) << (23 - MANTISSA);
    f32 value = __uint_as_float(size) * __uint_as_float((u32)(254 - BIAS) << 23);
    return __uint_as_float(__float_as_uint(value) | (x & 0x80u) << 24);
}
__device__ inline f32 widen(f8e4m3 x) {
    return (x.bits & 0x7f) == 0x7f ? __uint_as_float(0x7fffffffu) : from_f8<3, 7>(x.bits);
}
__device__ inline f32 widen(f8e5m2 x) {
    // The upper half of an f16.
    f16 half = {(u16)(x.bits << 8)};
    return widen(half);
}

// Converts from the Math type; f64 goes to narrow types through a round-to-odd float.
template <class T> struct Narrow {
    static __device__ T from(typename Traits<T>::Math x) { return (T)x; }
};
template <> struct Narrow<f16> {
    static __device__ f16 from(f32 x) { f16 y = {to_f16(x)}; return y; }
};
template <> struct Narrow<bf16> {
    static __device__ bf16 from(f32 x) { bf16 y = {to_bf16(x)}; return y; }
};
template <> struct Narrow<f8e4m3> {
    static __device__ f8e4m3 from(f32 x) {
#if defined(F8_INSTRUCTIONS)
        u16 pair;
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
        f8e4m3 y = {(u8)pair};
#else
        f8e4m3 y = {to_f8<3, 7, 0x7e>(x)};
#endif
        return y;
    }
};
template <> struct Narrow<f8e5m2> {
    static __device__ f8e5m2 from(f32 x) {
#if defined(F8_INSTRUCTIONS)
        u16 pair;
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
        f8e5m2 y = {(u8)pair};
#else
        f8e5m2 y = {to_f8<2, 15, 0x7b>(x)};
#endif
        return y;
    }
};

// Converts two values, with one instruction where there is one.
template <class E> __device__ inline void narrow_pair(E *to, typename Traits<E>::Math x, typename Traits<E>::Math y) {
#if !defined(__AMDGCN__) && __CUDA_ARCH__ >= 800
    if constexpr (sizeof(E) == 2 && !Traits<E>::INTEGER) {
        u32 pair;
        if constexpr (Traits<E>::IS_BF16) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(y), "f"(x));
        else asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(y), "f"(x));
        to[0].bits = (u16)pair;
        to[1].bits = (u16)(pair >> 16);
        return;
    }
#endif
    to[0] = Narrow<E>::from(x);
    to[1] = Narrow<E>::from(y);
}

// Rounds to odd: rounding the result again equals rounding the value once.
__device__ inline f32 to_odd(f64 x) {
    f32 near = (f32)x;
    if (x != x || (f64)near == x) return near;
    u32 bits = __float_as_uint(near);
    if (fabs((f64)near) > fabs(x)) bits -= 1;
    return __uint_as_float(bits | 1u);
}
__device__ inline f32 to_odd(i64 x) {
    u64 size = x < 0 ? 0 - (u64)x : (u64)x;
    int cut = 40 - __clzll((i64)size);
    if (cut <= 0) return (f32)x;
    u64 kept = size >> cut;
    if (kept << cut != size) kept |= 1;
    f32 value = (f32)(u32)kept * __uint_as_float((u32)(127 + cut) << 23);
    return x < 0 ? -value : value;
}

// Converts any type to any other. Integers wrap; float to integer truncates and saturates, and NaN becomes 0.
template <class To, class From> __device__ inline To convert(From from) {
    typedef typename Traits<To>::Math Math;
    auto x = widen(from);
    if constexpr (Traits<To>::INTEGER && Traits<From>::INTEGER) {
        return (To)x;
    } else if constexpr (Traits<To>::INTEGER) {
        typedef decltype(x) Real;
        const Real lowest = (Real)Traits<To>::lowest(), upper_bound = (Real)Traits<To>::upper_bound();
        if (x != x) return (To)0;
        if (x <= lowest) return Traits<To>::lowest();
        if (x >= upper_bound) return Traits<To>::highest();
        return (To)(Math)x;
    } else if constexpr (sizeof(To) >= 4) {
        return (To)x;
    } else if constexpr (Traits<From>::INTEGER) {
        return Narrow<To>::from(to_odd((i64)x));
    } else if constexpr (sizeof(From) == 8) {
        return Narrow<To>::from(to_odd(x));
    } else {
        return Narrow<To>::from(x);
    }
}
