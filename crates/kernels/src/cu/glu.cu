// Gated units: a function of one element times another. T is their type, U that of the result; OP_… says which
// function.

#if !defined(U)
#define U T
#endif

#define GATED(EXPRESSION)                                                                                                          \
    struct Gated {                                                                                                                 \
        typedef T A, B;                                                                                                            \
        typedef U R;                                                                                                               \
        typedef Nothing C;                                                                                                         \
        typedef Traits<T>::Math Math;                                                                                              \
        static const int ARITY = 2;                                                                                                \
        __device__ Gated(Scalars) {}                                                                                               \
        __device__ R at(A gate, B element, C) const {                                                                              \
            const Math x = widen(gate), up = widen(element);                                                                       \
            return Narrow<U>::from((EXPRESSION) * up);                                                                             \
        }                                                                                                                          \
    };                                                                                                                             \
    KERNELS(Gated)

#if defined(OP_swiglu)
GATED(Exact::sigmoid_times(x, x))
#elif defined(OP_geglu)
// Half of 1 + tanh(u) is the sigmoid of 2u, which loses no digits where tanh comes near -1.
GATED(Exact::sigmoid_times((Math)1.5957691216057307117 * x * (1 + (Math)0.044715 * x * x), x))
#elif defined(OP_geglu_erf)
GATED(Functions<T>::gelu_erf(x))
#elif defined(OP_reglu)
GATED(x < 0 ? (Math)0 : x)
#elif defined(OP_glu)
GATED(Exact::sigmoid_times(x, (Math)1))
#endif
