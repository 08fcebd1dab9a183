// Binary elementwise operations. T is the element type; OP_<name> selects the operation.
//
// Integers wrap; integer division by zero yields 0. Maximum and minimum propagate NaN.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME add_f32
#define OP_add
#define T f32
#define UNROLL 1
#endif

#include "common/math.cuh"
#include "elementwise/elementwise.cuh"

#define BINARY(RESULT, BODY)                                                                                                       \
    struct Op {                                                                                                                    \
        typedef T A, B;                                                                                                            \
        typedef Unused C;                                                                                                          \
        typedef RESULT R;                                                                                                          \
        typedef Traits<T>::Math Math;                                                                                              \
        static const int ARITY = 2;                                                                                                \
        __device__ Op(Scalars) {}                                                                                                  \
        __device__ R at(A first, B second, C) const {                                                                              \
            const Math x = widen(first), y = widen(second);                                                                        \
            BODY                                                                                                                   \
        }                                                                                                                          \
    };                                                                                                                             \
    KERNELS(Op)
#define ARITHMETIC(EXPRESSION) BINARY(T, return Narrow<T>::from(EXPRESSION);)
#define COMPARISON(EXPRESSION) BINARY(u8, return EXPRESSION ? 1 : 0;)

// The type integers are computed in, so that they wrap.
template <class M> struct Wrapping { typedef M Type; };
template <> struct Wrapping<i32> { typedef u32 Type; };
template <> struct Wrapping<i64> { typedef u64 Type; };
#define W(x) ((Wrapping<Math>::Type)(x))

template <class M> __device__ inline M quotient(M x, M y) {
    if (y == 0) return 0;
    if (y == (M)-1 && (M)-1 < 0) return (M)(0 - (typename Wrapping<M>::Type)x);
    return x / y;
}
template <> __device__ inline f32 quotient(f32 x, f32 y) { return x / y; }
template <> __device__ inline f64 quotient(f64 x, f64 y) { return x / y; }

#if defined(OP_add)
ARITHMETIC((Math)(W(x) + W(y)))
#elif defined(OP_sub)
ARITHMETIC((Math)(W(x) - W(y)))
#elif defined(OP_mul)
ARITHMETIC((Math)(W(x) * W(y)))
#elif defined(OP_div)
ARITHMETIC(quotient(x, y))
#elif defined(OP_max)
ARITHMETIC(x != x || x > y ? x : y)
#elif defined(OP_min)
ARITHMETIC(x != x || x < y ? x : y)
#elif defined(OP_pow)
BINARY(T, return Narrow<T>::from(Functions<T>::pow_of(x, y));)
#elif defined(OP_eq)
COMPARISON(x == y)
#elif defined(OP_ne)
COMPARISON(x != y)
#elif defined(OP_lt)
COMPARISON(x < y)
#elif defined(OP_le)
COMPARISON(x <= y)
#elif defined(OP_gt)
COMPARISON(x > y)
#elif defined(OP_ge)
COMPARISON(x >= y)
#endif
