// Integer intrinsics: counting, reversing, permuting, funnel shifts, dot products, high halves, loads with cache hints.
#pragma once

__WW_BOTH int __popc(unsigned int x) { return __builtin_popcount(x); }
__WW_BOTH int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
__WW_BOTH int __clz(int x) { return x == 0 ? 32 : __builtin_clz((unsigned int)x); }
__WW_BOTH int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll((unsigned long long)x); }
__WW_BOTH int __ffs(int x) { return __builtin_ffs(x); }
__WW_BOTH int __ffsll(long long x) { return __builtin_ffsll(x); }
__WW_BOTH unsigned int __brev(unsigned int x) { return __builtin_bitreverse32(x); }
__WW_BOTH unsigned long long __brevll(unsigned long long x) { return __builtin_bitreverse64(x); }

// Each nibble of `selector` picks one of the eight bytes of y:x; its top bit asks for that byte's sign, eight times, instead.
__WW_DEVICE unsigned int __byte_perm(unsigned int x, unsigned int y, unsigned int selector) {
    unsigned int spread = (selector & 0xfu) | (selector & 0xf0u) << 4 | (selector & 0xf00u) << 8 | (selector & 0xf000u) << 12;
    unsigned int picked = __builtin_amdgcn_perm(y, x, spread & 0x07070707u);
    unsigned int replace = ((spread >> 3) & 0x01010101u) * 0xffu;
    unsigned int signs = ((picked >> 7) & 0x01010101u) * 0xffu;
    return (picked & ~replace) | (signs & replace);
}

__WW_BOTH unsigned int __funnelshift_l(unsigned int lo, unsigned int hi, unsigned int shift) {
    return (unsigned int)((((unsigned long long)hi << 32 | lo) << (shift & 31)) >> 32);
}
__WW_BOTH unsigned int __funnelshift_lc(unsigned int lo, unsigned int hi, unsigned int shift) {
    unsigned int by = shift < 32 ? shift : 32;
    return (unsigned int)(((((unsigned long long)hi << 32) | lo) << by) >> 32);
}
__WW_BOTH unsigned int __funnelshift_r(unsigned int lo, unsigned int hi, unsigned int shift) {
    return (unsigned int)(((unsigned long long)hi << 32 | lo) >> (shift & 31));
}
__WW_BOTH unsigned int __funnelshift_rc(unsigned int lo, unsigned int hi, unsigned int shift) {
    unsigned int by = shift < 32 ? shift : 32;
    return (unsigned int)(((unsigned long long)hi << 32 | lo) >> by);
}

__WW_BOTH int __mul24(int x, int y) { return (int)((unsigned int)((x << 8) >> 8) * (unsigned int)((y << 8) >> 8)); }
__WW_BOTH unsigned int __umul24(unsigned int x, unsigned int y) { return (x & 0xffffffu) * (y & 0xffffffu); }
__WW_BOTH int __mulhi(int x, int y) { return (int)(((long long)x * y) >> 32); }
__WW_BOTH unsigned int __umulhi(unsigned int x, unsigned int y) { return (unsigned int)(((unsigned long long)x * y) >> 32); }
__WW_BOTH long long __mul64hi(long long x, long long y) { return (long long)(((__int128)x * y) >> 64); }
__WW_BOTH unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
    return (unsigned long long)(((unsigned __int128)x * y) >> 64);
}
__WW_BOTH int __hadd(int x, int y) { return (int)(((long long)x + y) >> 1); }
__WW_BOTH int __rhadd(int x, int y) { return (int)(((long long)x + y + 1) >> 1); }
__WW_BOTH unsigned int __uhadd(unsigned int x, unsigned int y) { return (unsigned int)(((unsigned long long)x + y) >> 1); }
__WW_BOTH unsigned int __urhadd(unsigned int x, unsigned int y) { return (unsigned int)(((unsigned long long)x + y + 1) >> 1); }
__WW_BOTH unsigned int __sad(int x, int y, unsigned int z) {
    return z + (x > y ? (unsigned int)x - (unsigned int)y : (unsigned int)y - (unsigned int)x);
}
__WW_BOTH unsigned int __usad(unsigned int x, unsigned int y, unsigned int z) { return z + (x > y ? x - y : y - x); }

// Four 8-bit products added to a 32-bit sum, in one instruction where the target has it.
#if WARPWAVE_ISA_VERSION == 9006 || WARPWAVE_ISA_VERSION == 9008 || WARPWAVE_ISA_VERSION == 9010 ||                                \
    (WARPWAVE_ISA_VERSION >= 9400 && WARPWAVE_ISA_VERSION <= 9500) || WARPWAVE_ISA_VERSION == 10101 ||                             \
    WARPWAVE_ISA_VERSION == 10102 || (WARPWAVE_ISA_VERSION >= 10300 && WARPWAVE_ISA_VERSION < 10400)
#define __WW_SDOT4 1
#define __WW_UDOT4 1
#elif WARPWAVE_ISA_VERSION >= 11000 && WARPWAVE_ISA_VERSION < 13000
#define __WW_SUDOT4 1
#define __WW_UDOT4 1
#endif
__WW_DEVICE int __dp4a(int a, int b, int c) {
#if defined(__WW_SDOT4)
    return __builtin_amdgcn_sdot4(a, b, c, false);
#elif defined(__WW_SUDOT4)
    return __builtin_amdgcn_sudot4(true, a, true, b, c, false);
#else
#pragma unroll
    for (int i = 0; i < 4; i++) c += (int)(signed char)(a >> (8 * i)) * (int)(signed char)(b >> (8 * i));
    return c;
#endif
}
__WW_DEVICE unsigned int __dp4a(unsigned int a, unsigned int b, unsigned int c) {
#if defined(__WW_UDOT4)
    return __builtin_amdgcn_udot4(a, b, c, false);
#else
#pragma unroll
    for (int i = 0; i < 4; i++) c += ((a >> (8 * i)) & 0xffu) * ((b >> (8 * i)) & 0xffu);
    return c;
#endif
}
// Two 16-bit by 8-bit products: the low pair of bytes of b, or the high pair.
__WW_DEVICE int __dp2a_lo(int a, int b, int c) { return c + (short)a * (signed char)b + (a >> 16) * (signed char)(b >> 8); }
__WW_DEVICE int __dp2a_hi(int a, int b, int c) { return c + (short)a * (signed char)(b >> 16) + (a >> 16) * (b >> 24); }
__WW_DEVICE unsigned int __dp2a_lo(unsigned int a, unsigned int b, unsigned int c) {
    return c + (a & 0xffffu) * (b & 0xffu) + (a >> 16) * ((b >> 8) & 0xffu);
}
__WW_DEVICE unsigned int __dp2a_hi(unsigned int a, unsigned int b, unsigned int c) {
    return c + (a & 0xffffu) * ((b >> 16) & 0xffu) + (a >> 16) * (b >> 24);
}

// Cache hints have no counterpart that is safe on every target: plain loads and stores.
#define __WW_LOAD(name)                                                                                                            \
    template <class T> __device__ inline __attribute__((always_inline)) T name(const T *pointer) { return *pointer; }
__WW_LOAD(__ldg) __WW_LOAD(__ldcg) __WW_LOAD(__ldca) __WW_LOAD(__ldcs) __WW_LOAD(__ldlu)
#undef __WW_LOAD
template <class T> __device__ inline T __ldcv(const T *pointer) { return *(const volatile T *)pointer; }
#define __WW_STORE(name)                                                                                                           \
    template <class T> __device__ inline __attribute__((always_inline)) void name(T *pointer, T value) { *pointer = value; }
__WW_STORE(__stwb) __WW_STORE(__stcg) __WW_STORE(__stcs) __WW_STORE(__stwt)
#undef __WW_STORE
