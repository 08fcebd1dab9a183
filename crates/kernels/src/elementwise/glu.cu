// Gated linear units: an activation of the gate times another element. T is their type, U that of the result; OP_<name> selects the
// activation.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME swiglu_f32
#define OP_swiglu
#define T f32
#define UNROLL 2
#endif

#include "common/math.cuh"
#include "elementwise/elementwise.cuh"

#if !defined(U)
#define U T
#endif

#define GATED(EXPRESSION) GATED_TIMES(EXPRESSION, up)
#define GATED_TIMES(EXPRESSION, FACTOR)                                                                                            \
    struct Gated {                                                                                                                 \
        typedef T A, B;                                                                                                            \
        typedef U R;                                                                                                               \
        typedef Unused C;                                                                                                          \
        typedef Traits<T>::Math Math;                                                                                              \
        static const int ARITY = 2;                                                                                                \
        __device__ Gated(Scalars) {}                                                                                               \
        __device__ R at(A gate, B element, C) const {                                                                              \
            const Math x = widen(gate), up = widen(element);                                                                       \
            return Narrow<U>::from((EXPRESSION) * (FACTOR));                                                                       \
        }                                                                                                                          \
    };                                                                                                                             \
    KERNELS(Gated)

#if defined(OP_swiglu)
GATED(Exact::sigmoid_times(x, x))
#elif defined(OP_geglu)
// (1 + tanh(u)) / 2 = sigmoid(2u), without cancellation where tanh is near -1.
GATED(Exact::sigmoid_times((Math)1.5957691216057307117 * x * (1 + (Math)0.044715 * x * x), x))
#elif defined(OP_geglu_erf)
GATED(Functions<T>::gelu_erf(x))
#elif defined(OP_reglu)
GATED(x < 0 ? (Math)0 : x)
#elif defined(OP_glu)
GATED(Exact::sigmoid_times(x, (Math)1))
#elif defined(OP_swiglu_clamped)
// NaN stays.
template <class M> __device__ inline M at_most_7(M x) { return x > 7 ? (M)7 : x; }
GATED_TIMES(Exact::sigmoid_times((Math)1.702 * at_most_7(x), at_most_7(x)), (up < -7 ? (Math)-7 : at_most_7(up)) + 1)
#endif
