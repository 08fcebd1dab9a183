// Conversions of one type to all.
#pragma once
#include "elementwise.cuh"
#include <cuda_bf16.h>
#include <cuda_fp16.h>

typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef short i16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;
typedef __half f16;
typedef __nv_bfloat16 bf16;
typedef float f32;
typedef double f64;

template <class T> static __device__ T plain(T x) { return x; }
static __device__ float plain(f16 x) { return __half2float(x); }
static __device__ float plain(bf16 x) { return __bfloat162float(x); }
static __device__ int plain(u8 x) { return x; }
static __device__ int plain(i8 x) { return x; }
static __device__ int plain(u16 x) { return x; }
static __device__ int plain(i16 x) { return x; }

template <class D> struct To {
    template <class S> static __device__ D from(S x) { return (D)x; }
};
template <> struct To<f16> {
    template <class S> static __device__ f16 from(S x) { return f16((float)x); }
    static __device__ f16 from(double x) { return __double2half(x); }
};
template <> struct To<bf16> {
    template <class S> static __device__ bf16 from(S x) { return __float2bfloat16((float)x); }
};

#define CAST(S, D) UNARY_TO(cast_##S##_##D, S, D, To<D>::from(plain(x)))
#define CASTS(S)                                                                                                                   \
    CAST(S, u8) CAST(S, i8) CAST(S, u16) CAST(S, i16) CAST(S, u32) CAST(S, i32) CAST(S, u64) CAST(S, i64) CAST(S, f16) CAST(S, bf16) \
    CAST(S, f32) CAST(S, f64)
