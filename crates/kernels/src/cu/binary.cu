// Functions of two elements. T is their type; OP_… says which function the kernels are of.
//
// Whole numbers wrap. A division by zero is 0. The larger or smaller of a number and NaN is NaN.

#define BINARY(RESULT, BODY)                                                                                                       \
    struct Op {                                                                                                                    \
        typedef T A, B;                                                                                                            \
        typedef Nothing C;                                                                                                         \
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

// What whole numbers are added and multiplied as, so that they wrap.
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
