
#include <hip/hip_runtime.h>
// Integer instructions.
extern "C" __global__ void integers(const unsigned *in, unsigned *out, unsigned long long *wide) {
    unsigned a = in[threadIdx.x], b = in[threadIdx.x + 1], r;
    int s;
    do { unsigned int __ww0 = {}; unsigned int __ww1 = (unsigned int)(a); unsigned int __ww2 = (unsigned int)(4); unsigned int __ww3 = (unsigned int)(8); __ww0 = (unsigned int)(((unsigned long long)__ww1 >> ((__ww2 & 255u) > 32u ? 32u : (__ww2 & 255u))) & ((1ull << ((__ww3 & 255u) > 32u ? 32u : (__ww3 & 255u))) - 1)); (r) = __ww0; } while (0);
    out[0] = r;
    do { unsigned int __ww0 = {}; unsigned int __ww1 = (unsigned int)(a); __ww0 = (unsigned int)(((8 & 255u) > 32u ? 32u : (8 & 255u)) == 0 ? 0 : (int)((((long long)(int)__ww1 >> ((4 & 255u) > 32u ? 32u : (4 & 255u))) << (64 - ((8 & 255u) > 32u ? 32u : (8 & 255u)))) >> (64 - ((8 & 255u) > 32u ? 32u : (8 & 255u))))); (s) = __ww0; } while (0);
    out[1] = s;
    do { unsigned int __ww0 = {}; unsigned int __ww1 = (unsigned int)(a); unsigned int __ww2 = (unsigned int)(b); unsigned int __ww3 = (unsigned int)(3); unsigned int __ww4 = (unsigned int)(5); __ww0 = (__ww2 & ~(unsigned int)(((1ull << ((__ww4 & 255u) > 32u ? 32u : (__ww4 & 255u))) - 1) << ((__ww3 & 255u) > 32u ? 32u : (__ww3 & 255u)))) | ((unsigned int)((unsigned long long)__ww1 << ((__ww3 & 255u) > 32u ? 32u : (__ww3 & 255u))) & (unsigned int)(((1ull << ((__ww4 & 255u) > 32u ? 32u : (__ww4 & 255u))) - 1) << ((__ww3 & 255u) > 32u ? 32u : (__ww3 & 255u)))); (r) = __ww0; } while (0);
    out[2] = r;
    do { unsigned int __ww0 = {}; unsigned int __ww1 = (unsigned int)(a); unsigned int __ww2 = (unsigned int)(b); unsigned int __ww3 = (unsigned int)(7); __ww0 = (~__ww1 & __ww2 & __ww3) | (__ww1 & ~__ww2 & __ww3) | (__ww1 & __ww2 & ~__ww3) | (__ww1 & __ww2 & __ww3); (r) = __ww0; } while (0);
    out[3] = r;
    do { unsigned int __ww0 = {}; unsigned int __ww1 = (unsigned int)(a); unsigned int __ww2 = (unsigned int)(b); __ww0 = __byte_perm(__ww1, __ww2, 0x3210); (r) = __ww0; } while (0);
    out[4] = r;
    do { unsigned int __ww0 = {}; unsigned int __ww1 = (unsigned int)(a); unsigned int __ww2 = (unsigned int)(b); unsigned int __ww3 = (unsigned int)(9); __ww0 = __funnelshift_l(__ww1, __ww2, __ww3); (r) = __ww0; } while (0);
    out[5] = r;
    do { unsigned int __ww0 = {}; unsigned int __ww1 = (unsigned int)(a); __ww0 = __popc(__ww1); (r) = __ww0; } while (0);
    out[6] = r;
    do { unsigned int __ww0 = {}; unsigned int __ww1 = (unsigned int)(a); __ww0 = __clz(__ww1); (r) = __ww0; } while (0);
    out[7] = r;
    do { unsigned int __ww0 = {}; unsigned int __ww1 = (unsigned int)(a); __ww0 = __brev(__ww1); (r) = __ww0; } while (0);
    out[8] = r;
    do { unsigned int __ww0 = {}; unsigned int __ww1 = (unsigned int)(a); unsigned int __ww2 = (unsigned int)(b); __ww0 = __umulhi(__ww1, __ww2); (r) = __ww0; } while (0);
    out[9] = r;
    do { unsigned int __ww0 = {}; unsigned int __ww1 = (unsigned int)(a); unsigned int __ww2 = (unsigned int)(b); unsigned int __ww3 = (unsigned int)(-1); __ww0 = (unsigned int)((int)__ww1 * (int)__ww2 + (int)__ww3); (s) = __ww0; } while (0);
    out[10] = s;
    do { unsigned long long __ww0 = {}; unsigned int __ww1 = (unsigned int)(a); unsigned int __ww2 = (unsigned int)(b); __ww0 = (unsigned long long)__ww1 * (unsigned long long)__ww2; (wide[0]) = (__typeof__(wide[0]))__ww0; } while (0);
    do { unsigned long long __ww0 = {}; unsigned int __ww1 = (unsigned int)(a); unsigned int __ww2 = (unsigned int)(b); unsigned long long __ww3 = (unsigned long long)(wide[2]); __ww0 = (unsigned long long)((long long)(int)__ww1 * (long long)(int)__ww2 + (long long)__ww3); (wide[1]) = (__typeof__(wide[1]))__ww0; } while (0);
    do { unsigned int __ww0 = {}; unsigned int __ww1 = (unsigned int)(a); unsigned int __ww2 = (unsigned int)(b); unsigned int __ww3 = (unsigned int)(s); __ww0 = (unsigned int)((int)__ww3 + (int)(signed char)((int)__ww1 >> 0) * (int)(signed char)((int)__ww2 >> 0) + (int)(signed char)((int)__ww1 >> 8) * (int)(signed char)((int)__ww2 >> 8) + (int)(signed char)((int)__ww1 >> 16) * (int)(signed char)((int)__ww2 >> 16) + (int)(signed char)((int)__ww1 >> 24) * (int)(signed char)((int)__ww2 >> 24)); (s) = __ww0; } while (0);
    out[11] = s;
    do { unsigned int __ww0 = {}; unsigned int __ww1 = (unsigned int)(a); unsigned int __ww2 = (unsigned int)(b); __ww0 = (unsigned int)((int)__ww1 < (int)__ww2 ? (int)__ww1 : (int)__ww2); (s) = __ww0; } while (0);
    out[12] = s;
    do { unsigned int __ww0 = {}; unsigned int __ww1 = (unsigned int)(a); unsigned int __ww2 = (unsigned int)(40); __ww0 = __ww2 < 32 ? __ww1 >> __ww2 : 0; (r) = __ww0; } while (0);
    out[13] = r;
    do { unsigned long long __ww0 = {}; unsigned int __ww1 = (unsigned int)(a); unsigned int __ww2 = (unsigned int)(b); __ww0 = (unsigned long long)__ww1 | (unsigned long long)__ww2 << 32; (wide[3]) = (__typeof__(wide[3]))__ww0; } while (0);
    do { unsigned int __ww0 = {}; unsigned int __ww1 = {}; unsigned long long __ww2 = (unsigned long long)(wide[3]); unsigned long long __mv0 = __ww2; __ww0 = (unsigned int)(__mv0); __ww1 = (unsigned int)(__mv0 >> 32); (r) = __ww0; (s) = __ww1; } while (0);
    out[14] = r + s;
}
