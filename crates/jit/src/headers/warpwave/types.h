// dim3 and the built-in vector types, with CUDA's sizes and alignments. They have no operators, as in CUDA: sources define their own.
#pragma once

#define __WW_VECTOR(type, name, align2, align4)                                                                                    \
    struct name##1 { type x; };                                                                                                    \
    struct __attribute__((aligned(align2))) name##2 { type x, y; };                                                                \
    struct name##3 { type x, y, z; };                                                                                              \
    struct __attribute__((aligned(align4))) name##4 { type x, y, z, w; };                                                          \
    __WW_BOTH constexpr name##1 make_##name##1(type x) { return name##1{x}; }                                                      \
    __WW_BOTH constexpr name##2 make_##name##2(type x, type y) { return name##2{x, y}; }                                           \
    __WW_BOTH constexpr name##3 make_##name##3(type x, type y, type z) { return name##3{x, y, z}; }                                \
    __WW_BOTH constexpr name##4 make_##name##4(type x, type y, type z, type w) { return name##4{x, y, z, w}; }

__WW_VECTOR(signed char, char, 2, 4)
__WW_VECTOR(unsigned char, uchar, 2, 4)
__WW_VECTOR(short, short, 4, 8)
__WW_VECTOR(unsigned short, ushort, 4, 8)
__WW_VECTOR(int, int, 8, 16)
__WW_VECTOR(unsigned int, uint, 8, 16)
__WW_VECTOR(long, long, 16, 16)
__WW_VECTOR(unsigned long, ulong, 16, 16)
__WW_VECTOR(long long, longlong, 16, 16)
__WW_VECTOR(unsigned long long, ulonglong, 16, 16)
__WW_VECTOR(float, float, 8, 16)
__WW_VECTOR(double, double, 16, 16)
#undef __WW_VECTOR

struct dim3 {
    unsigned int x, y, z;
    __host__ __device__ constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
    __host__ __device__ constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    __host__ __device__ constexpr operator uint3() const { return uint3{x, y, z}; }
};
