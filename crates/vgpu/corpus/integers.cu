// Arithmetic of every integer type. Divisors are not zero, shifts are below the width.
#include "elementwise.cuh"

#define INTEGER(T, name)                                                                                                           \
    BINARY(add_##name, T, a + b)                                                                                                   \
    BINARY(sub_##name, T, a - b)                                                                                                   \
    BINARY(mul_##name, T, a *b)                                                                                                    \
    BINARY(div_##name, T, a / b)                                                                                                   \
    BINARY(rem_##name, T, a % b)                                                                                                   \
    BINARY(min_##name, T, a < b ? a : b)                                                                                           \
    BINARY(max_##name, T, a > b ? a : b)                                                                                           \
    BINARY(logic_##name, T, (a & b) ^ (a | ~b))                                                                                    \
    BINARY(shl_##name, T, a << (b & (T)(8 * sizeof(T) - 1)))                                                                       \
    BINARY(shr_##name, T, a >> (b & (T)(8 * sizeof(T) - 1)))                                                                       \
    BINARY_TO(compare_##name, T, int, (a < b ? 1 : 0) | (a <= b ? 2 : 0) | (a == b ? 4 : 0) | (a > b ? 8 : 0))

INTEGER(unsigned char, u8)
INTEGER(signed char, i8)
INTEGER(unsigned short, u16)
INTEGER(short, i16)
INTEGER(unsigned int, u32)
INTEGER(int, i32)
INTEGER(unsigned long long, u64)
INTEGER(long long, i64)
