// Unary elementwise operations. T is the element type; OP_<name> selects the operation.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME exp_f32
#define OP_exp
#define T f32
#define UNROLL 2
#endif

#include "common/math.cuh"
#include "elementwise/elementwise.cuh"

#define UNARY(EXPRESSION)                                                                                                          \
    struct Op {                                                                                                                    \
        typedef T A, R;                                                                                                            \
        typedef Unused B, C;                                                                                                       \
        typedef Traits<T>::Math Math;                                                                                              \
        typedef Functions<T> Of;                                                                                                   \
        static const int ARITY = 1;                                                                                                \
        static const bool PAIRS = true;                                                                                            \
        Math p, q;                                                                                                                 \
        __device__ Op(Scalars s)                                                                                                   \
            : p(Traits<T>::INTEGER ? (Math)s.i : (Math)s.x), q(Traits<T>::INTEGER ? (Math)s.j : (Math)s.y) {}                      \
        __device__ Math value(A element) const {                                                                                   \
            const Math x = widen(element);                                                                                         \
            return EXPRESSION;                                                                                                     \
        }                                                                                                                          \
        __device__ R at(A element, B, C) const { return Narrow<T>::from(value(element)); }                                         \
    };                                                                                                                             \
    KERNELS(Op)

template <class M> __device__ inline M negative(M x) { return -x; }
template <> __device__ inline i32 negative(i32 x) { return (i32)(0u - (u32)x); }
template <> __device__ inline i64 negative(i64 x) { return (i64)(0ull - (u64)x); }
template <class M> __device__ inline M absolute(M x) { return x < 0 ? negative(x) : x; }
template <> __device__ inline f32 absolute(f32 x) { return fabs(x); }
template <> __device__ inline f64 absolute(f64 x) { return fabs(x); }
template <class M> __device__ inline M square(M x) { return x * x; }
template <> __device__ inline i32 square(i32 x) { return (i32)((u32)x * (u32)x); }
template <> __device__ inline i64 square(i64 x) { return (i64)((u64)x * (u64)x); }

#if defined(OP_neg)
UNARY(negative(x))
#elif defined(OP_abs)
UNARY(absolute(x))
#elif defined(OP_sign)
UNARY(x > 0 ? (Math)1 : x < 0 ? (Math)-1 : (Math)0)
#elif defined(OP_sqr)
UNARY(square(x))
#elif defined(OP_relu)
UNARY(x < 0 ? (Math)0 : x)
#elif defined(OP_clamp)
UNARY(x < p ? p : x > q ? q : x)
#elif defined(OP_recip)
UNARY(Of::reciprocal(x))
#elif defined(OP_sqrt)
UNARY(Of::sqrt_of(x))
#elif defined(OP_rsqrt)
UNARY(rsqrt(x))
#elif defined(OP_floor)
UNARY(floor(x))
#elif defined(OP_ceil)
UNARY(ceil(x))
#elif defined(OP_round)
UNARY(round(x))
#elif defined(OP_exp)
UNARY(Of::exp_of(x))
#elif defined(OP_log)
UNARY(Of::log_of(x))
#elif defined(OP_sin)
UNARY(Of::sin_of(x))
#elif defined(OP_cos)
UNARY(Of::cos_of(x))
#elif defined(OP_tanh)
UNARY(Of::tanh_of(x))
#elif defined(OP_erf)
UNARY(Of::erf_of(x))
#elif defined(OP_sigmoid)
UNARY(Of::sigmoid_times(x, (Math)1))
#elif defined(OP_silu)
UNARY(Of::sigmoid_times(x, x))
#elif defined(OP_gelu)
// (1 + tanh(u)) / 2 = sigmoid(2u), without cancellation where tanh is near -1.
UNARY(Of::sigmoid_times((Math)1.5957691216057307117 * x * (1 + (Math)0.044715 * x * x), x))
#elif defined(OP_gelu_erf)
UNARY(Of::gelu_erf(x))
#elif defined(OP_elu)
UNARY(x > 0 ? x : p * Of::expm1_of(x))
#elif defined(OP_powf)
// What depends only on the exponent is uniform: among others whether a fast path applies.
template <bool COMMON> struct Powf {
    typedef T A, R;
    typedef Unused B, C;
    typedef Traits<T>::Math Math;
    static const int ARITY = 1;
    static const bool PAIRS = true;
    Math y;
    Exponent exponent;
    __device__ Powf(Scalars s) : y((Math)s.x), exponent((f32)s.x) {}
    static __device__ bool is_common(Scalars s) {
        return sizeof(T) <= 4 && fabs(s.x) <= (sizeof(T) < 4 ? POW_FAST_EXPONENT : POW_SHORT_EXPONENT) && s.x != 0 && s.x != 2;
    }
    __device__ Math value(A element) const {
        const Math x = widen(element);
        if constexpr (COMMON && sizeof(T) < 4) {
            return exponent.fast_of(x);
        } else if constexpr (COMMON && sizeof(T) == 4) {
            return exponent.short_of(x);
        } else {
            if constexpr (sizeof(T) == 4) {
                if (y != 0 && y != 2 && fabs(y) <= POW_MAX_EXPONENT) return exponent.of(x);
            }
            // A square is exact, as users expect.
            return y == 2 ? x * x : pow(x, y);
        }
    }
    __device__ R at(A element, B, C) const { return Narrow<T>::from(value(element)); }
};
typedef Powf<true> Common;
typedef Powf<false> Uncommon;
KERNELS_OF_TWO(Common, Uncommon, Common::is_common(scalars))
#endif
