// Copy, fill, where and masked fill; and affine and cast.
//
// Copies depend only on the element size: T is an unsigned integer of that size. So is U, the condition of `where`.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME cast_f32_f16
#define OP_cast
#define T f32
#define U f16
#define UNROLL 4
#endif

#include "elementwise/elementwise.cuh"

#if defined(OP_copy)
struct Copy {
    typedef T A, R;
    typedef Unused B, C;
    static const int ARITY = 1;
    __device__ Copy(Scalars) {}
    __device__ R at(A x, B, C) const { return x; }
};
KERNELS(Copy)
#elif defined(OP_fill)
struct Fill {
    typedef T R;
    typedef Unused A, B, C;
    static const int ARITY = 0;
    T value;
    // The element's bits.
    __device__ Fill(Scalars s) : value((T)s.i) {}
    __device__ R at(A, B, C) const { return value; }
};
KERNELS(Fill)
#elif defined(OP_where)
struct Where {
    typedef U A;
    typedef T B, C, R;
    static const int ARITY = 3;
    __device__ Where(Scalars) {}
    __device__ R at(A which, B yes, C no) const { return which ? yes : no; }
};
KERNELS(Where)
#elif defined(OP_masked_fill)
struct MaskedFill {
    typedef u8 A;
    typedef T B, R;
    typedef Unused C;
    static const int ARITY = 2;
    T value;
    __device__ MaskedFill(Scalars s) : value((T)s.i) {}
    __device__ R at(A mask, B x, C) const { return mask ? value : x; }
};
KERNELS(MaskedFill)
#elif defined(OP_affine)
template <class M> __device__ inline M multiply_add(M x, M factor, M term) { return (M)((u64)x * (u64)factor + (u64)term); }
template <> __device__ inline f32 multiply_add(f32 x, f32 factor, f32 term) { return fma(x, factor, term); }
template <> __device__ inline f64 multiply_add(f64 x, f64 factor, f64 term) { return fma(x, factor, term); }
struct Affine {
    typedef T A, R;
    typedef Unused B, C;
    typedef Traits<T>::Math Math;
    static const int ARITY = 1;
    Math factor, term;
    __device__ Affine(Scalars s)
        : factor(Traits<T>::INTEGER ? (Math)s.i : (Math)s.x), term(Traits<T>::INTEGER ? (Math)s.j : (Math)s.y) {}
    __device__ R at(A element, B, C) const {
        return Narrow<T>::from(multiply_add(widen(element), factor, term));
    }
};
KERNELS(Affine)
#elif defined(OP_cast)
struct Cast {
    typedef T A;
    typedef U R;
    typedef Unused B, C;
    static const int ARITY = 1;
    __device__ Cast(Scalars) {}
    __device__ R at(A x, B, C) const { return convert<U>(x); }
};
KERNELS(Cast)
#endif
