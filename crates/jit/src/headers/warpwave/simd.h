// CUDA's "video" instructions: two 16-bit or four 8-bit integers in a word.
#pragma once

namespace __warpwave {
// The parts of a word, sign- or zero-extended, put through `f` one by one.
template <int parts, bool is_signed> __WW_BOTH int part_of(unsigned int word, int index) {
    const int bits = 32 / parts;
    int shifted = (int)(word << (32 - bits * (index + 1)));
    return is_signed ? shifted >> (32 - bits) : (int)((unsigned int)shifted >> (32 - bits));
}
template <int parts, bool is_signed, class F> __WW_BOTH unsigned int each_part(unsigned int a, unsigned int b, F f) {
    const int bits = 32 / parts;
    const unsigned int ones = 0xffffffffu >> (32 - bits);
    unsigned int result = 0;
#pragma unroll
    for (int i = 0; i < parts; i++)
        result |= ((unsigned int)f(part_of<parts, is_signed>(a, i), part_of<parts, is_signed>(b, i)) & ones) << (bits * i);
    return result;
}
template <int parts> __WW_BOTH int clamp_signed(int x) {
    const int top = (1 << (32 / parts - 1)) - 1;
    return x > top ? top : x < -top - 1 ? -top - 1 : x;
}
template <int parts> __WW_BOTH int clamp_unsigned(int x) {
    const int top = (1 << (32 / parts)) - 1;
    return x > top ? top : x < 0 ? 0 : x;
}
} // namespace __warpwave

#define __WW_SIMD2(name, parts, is_signed, expression)                                                                             \
    __WW_BOTH unsigned int name##parts(unsigned int a, unsigned int b) {                                                           \
        return __warpwave::each_part<parts, is_signed>(a, b, [](int x, int y) { return expression; });                             \
    }
#define __WW_SIMD1(name, parts, expression)                                                                                        \
    __WW_BOTH unsigned int name##parts(unsigned int a) {                                                                           \
        return __warpwave::each_part<parts, true>(a, 0, [](int x, int) { return expression; });                                    \
    }
// A sum over the parts.
#define __WW_SIMD_SUM(name, parts, is_signed, expression)                                                                          \
    __WW_BOTH unsigned int name##parts(unsigned int a, unsigned int b) {                                                           \
        unsigned int sum = 0;                                                                                                      \
        for (int i = 0; i < parts; i++) {                                                                                          \
            int x = __warpwave::part_of<parts, is_signed>(a, i), y = __warpwave::part_of<parts, is_signed>(b, i);                  \
            sum += (unsigned int)(expression);                                                                                     \
        }                                                                                                                          \
        return sum;                                                                                                                \
    }
// Comparisons: all ones or zeros in `cmp`, 1 or 0 in `set`.
#define __WW_SIMD_COMPARE(name, parts, is_signed, op)                                                                              \
    __WW_SIMD2(__vcmp##name, parts, is_signed, x op y ? -1 : 0)                                                                    \
    __WW_SIMD2(__vset##name, parts, is_signed, x op y ? 1 : 0)
#define __WW_SIMD(parts)                                                                                                           \
    __WW_SIMD1(__vabs, parts, x < 0 ? -x : x)                                                                                      \
    __WW_SIMD1(__vabsss, parts, __warpwave::clamp_signed<parts>(x < 0 ? -x : x))                                                   \
    __WW_SIMD1(__vneg, parts, -x)                                                                                                  \
    __WW_SIMD1(__vnegss, parts, __warpwave::clamp_signed<parts>(-x))                                                               \
    __WW_SIMD2(__vadd, parts, true, x + y)                                                                                         \
    __WW_SIMD2(__vaddss, parts, true, __warpwave::clamp_signed<parts>(x + y))                                                      \
    __WW_SIMD2(__vaddus, parts, false, __warpwave::clamp_unsigned<parts>(x + y))                                                   \
    __WW_SIMD2(__vsub, parts, true, x - y)                                                                                         \
    __WW_SIMD2(__vsubss, parts, true, __warpwave::clamp_signed<parts>(x - y))                                                      \
    __WW_SIMD2(__vsubus, parts, false, __warpwave::clamp_unsigned<parts>(x - y))                                                   \
    __WW_SIMD2(__vavgs, parts, true, (x + y + (x + y >= 0)) >> 1)                                                                  \
    __WW_SIMD2(__vavgu, parts, false, (x + y + 1) >> 1)                                                                            \
    __WW_SIMD2(__vhaddu, parts, false, (x + y) >> 1)                                                                               \
    __WW_SIMD2(__vabsdiffs, parts, true, x > y ? x - y : y - x)                                                                    \
    __WW_SIMD2(__vabsdiffu, parts, false, x > y ? x - y : y - x)                                                                   \
    __WW_SIMD2(__vmaxs, parts, true, x > y ? x : y)                                                                                \
    __WW_SIMD2(__vmaxu, parts, false, x > y ? x : y)                                                                               \
    __WW_SIMD2(__vmins, parts, true, x < y ? x : y)                                                                                \
    __WW_SIMD2(__vminu, parts, false, x < y ? x : y)                                                                               \
    __WW_SIMD_SUM(__vsads, parts, true, x > y ? x - y : y - x)                                                                     \
    __WW_SIMD_COMPARE(eq, parts, false, ==)                                                                                        \
    __WW_SIMD_COMPARE(ne, parts, false, !=)                                                                                        \
    __WW_SIMD_COMPARE(gts, parts, true, >)                                                                                         \
    __WW_SIMD_COMPARE(gtu, parts, false, >)                                                                                        \
    __WW_SIMD_COMPARE(ges, parts, true, >=)                                                                                        \
    __WW_SIMD_COMPARE(geu, parts, false, >=)                                                                                       \
    __WW_SIMD_COMPARE(lts, parts, true, <)                                                                                         \
    __WW_SIMD_COMPARE(ltu, parts, false, <)                                                                                        \
    __WW_SIMD_COMPARE(les, parts, true, <=)                                                                                        \
    __WW_SIMD_COMPARE(leu, parts, false, <=)
__WW_SIMD(2)
__WW_SIMD(4)
__WW_SIMD_SUM(__vsadu, 2, false, x > y ? x - y : y - x)
#ifdef __AMDGCN__
// The instruction for it: clang 19 drops the absolute value of the first byte of the sum written out.
__WW_BOTH unsigned int __vsadu4(unsigned int a, unsigned int b) { return __builtin_amdgcn_sad_u8(a, b, 0); }
#else
__WW_SIMD_SUM(__vsadu, 4, false, x > y ? x - y : y - x)
#endif
#undef __WW_SIMD
#undef __WW_SIMD_COMPARE
#undef __WW_SIMD_SUM
#undef __WW_SIMD1
#undef __WW_SIMD2
