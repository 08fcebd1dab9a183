// Quantized KV caches: an element is a code of one byte times a scale of f16.
//
// CODES 1: q8_0, signed bytes with a scale for each 32 elements of a head, as GGUF's blocks of that name. CODES 2: fp8 (e4m3, OCP's on
// every device) with a scale for each head of a token.

#pragma once

#include "common/head_strides.cuh"
#include "common/pack.cuh"

#if CODES == 1
struct Code { u8 bits; };
__device__ inline f32 widen(Code x) { return (f32)(signed char)x.bits; }
#define LARGEST_CODE 127.0f
#define CODE_GROUP 32
// The group of an element.
__device__ inline int group_of(int column) { return column / CODE_GROUP; }
#else
typedef f8e4m3 Code;
#define LARGEST_CODE 448.0f
#define CODE_GROUP 256
__device__ inline int group_of(int) { return 0; }
#endif

// Strides of the scales of keys and values, whose groups are consecutive.
struct CodeScales { HeadStrides k, v; };

// Eight codes as T, which are of one group.
template <class T> __device__ inline void expand(T *to, const Pack<Code, 8> &codes, f32 scale) {
#pragma unroll
    for (int e = 0; e < 8; e += 2) narrow_pair(to + e, widen(codes.at[e]) * scale, widen(codes.at[e + 1]) * scale);
}

// Eight codes of a row; `aligned` if they can be read at once.
__device__ inline Pack<Code, 8> get_codes(const Code *from, bool aligned) {
    if (aligned) return get<Code, 8>(from);
    Pack<Code, 8> codes;
#pragma unroll
    for (int e = 0; e < 8; ++e) codes.at[e] = from[e];
    return codes;
}
