// The operations of MPI_Allreduce on a device. ELEMENT_… and OP_… are set for each compile, which makes one of many programs of this
// text.
//
// The bits are those that the host computes: the operand of the lower ranks stands first, integers wrap, half-precision values are
// combined as floats and rounded once, a product of complex numbers is not fused, and what is not comparable leaves the first operand.

typedef unsigned long long Index;
typedef unsigned short Bits;

// What an element is.
#if defined(ELEMENT_I8)
typedef signed char T;
typedef unsigned int Wide;
#elif defined(ELEMENT_U8)
typedef unsigned char T;
typedef unsigned int Wide;
#elif defined(ELEMENT_I16)
typedef short T;
typedef unsigned int Wide;
#elif defined(ELEMENT_U16)
typedef unsigned short T;
typedef unsigned int Wide;
#elif defined(ELEMENT_I32)
typedef int T;
typedef unsigned int Wide;
#elif defined(ELEMENT_U32)
typedef unsigned int T;
typedef unsigned int Wide;
#elif defined(ELEMENT_I64)
typedef long long T;
typedef unsigned long long Wide;
#elif defined(ELEMENT_U64)
typedef unsigned long long T;
typedef unsigned long long Wide;
#elif defined(ELEMENT_F16) || defined(ELEMENT_BF16)
typedef Bits T;
#define HALF
#elif defined(ELEMENT_F32)
typedef float T;
#define REAL
#elif defined(ELEMENT_F64)
typedef double T;
#define REAL
#elif defined(ELEMENT_COMPLEX4)
typedef Bits Part;
#define COMPLEX
#elif defined(ELEMENT_COMPLEX8)
typedef float Part;
#define COMPLEX
#elif defined(ELEMENT_COMPLEX16)
typedef double Part;
#define COMPLEX
#elif defined(ELEMENT_FLOATINT)
typedef float Value;
typedef int Place;
#define PAIR
#elif defined(ELEMENT_DOUBLEINT)
typedef double Value;
typedef int Place;
#define PAIR
#define PADDED
#elif defined(ELEMENT_LONGINT)
typedef long long Value;
typedef int Place;
#define PAIR
#define PADDED
#elif defined(ELEMENT_INTINT)
typedef int Value;
typedef int Place;
#define PAIR
#elif defined(ELEMENT_SHORTINT)
typedef short Value;
typedef int Place;
#define PAIR
#define PADDED
#elif defined(ELEMENT_FLOATFLOAT)
typedef float Value;
typedef float Place;
#define PAIR
#elif defined(ELEMENT_DOUBLEDOUBLE)
typedef double Value;
typedef double Place;
#define PAIR
#endif

#if defined(ELEMENT_F16) || defined(ELEMENT_COMPLEX4)
#if defined(__AMDGCN__)
__device__ inline float widen(Bits bits) { return (float)__builtin_bit_cast(_Float16, bits); }
__device__ inline Bits narrow(float value) { return __builtin_bit_cast(Bits, (_Float16)value); }
#else
__device__ inline float widen(Bits bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}
__device__ inline Bits narrow(float value) {
    Bits bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
#endif
#elif defined(ELEMENT_BF16)
__device__ inline float widen(Bits bits) { return __uint_as_float((unsigned int)bits << 16); }
__device__ inline Bits narrow(float value) {
    unsigned int bits = __float_as_uint(value);
    if (value != value) return (Bits)(bits >> 16 | 0x40u);
    return (Bits)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
#endif

#if defined(COMPLEX)
struct T { Part re, im; };
#if defined(ELEMENT_COMPLEX4)
typedef float Real;
__device__ inline Real wide(Part part) { return widen(part); }
__device__ inline Part part(Real real) { return narrow(real); }
#else
typedef Part Real;
__device__ inline Real wide(Part part) { return part; }
__device__ inline Part part(Real real) { return real; }
#endif
// No fused products: the host has none.
__device__ inline float times(float a, float b) { return __fmul_rn(a, b); }
__device__ inline double times(double a, double b) { return __dmul_rn(a, b); }
__device__ inline float plus(float a, float b) { return __fadd_rn(a, b); }
__device__ inline double plus(double a, double b) { return __dadd_rn(a, b); }
#elif defined(PAIR)
struct T { Value value; Place place; };
#endif

// `a` is the lower ranks'.
__device__ inline T f(T a, T b) {
#if defined(COMPLEX)
    Real ar = wide(a.re), ai = wide(a.im), br = wide(b.re), bi = wide(b.im);
    T result;
#if defined(OP_SUM)
    result.re = part(plus(ar, br));
    result.im = part(plus(ai, bi));
#elif defined(OP_PROD)
    result.re = part(plus(times(ar, br), -times(ai, bi)));
    result.im = part(plus(times(ar, bi), times(ai, br)));
#endif
    return result;
#elif defined(PAIR)
#if defined(OP_MINLOC)
    bool second = b.value < a.value;
#elif defined(OP_MAXLOC)
    bool second = b.value > a.value;
#endif
    return second || (a.value == b.value && b.place < a.place) ? b : a;
#elif defined(HALF)
    float x = widen(a), y = widen(b);
#if defined(OP_SUM)
    return narrow(x + y);
#elif defined(OP_PROD)
    return narrow(x * y);
#elif defined(OP_MIN)
    return y < x ? b : a;
#elif defined(OP_MAX)
    return y > x ? b : a;
#endif
#elif defined(REAL) && defined(OP_SUM)
    return a + b;
#elif defined(REAL) && defined(OP_PROD)
    return a * b;
#elif defined(OP_MIN)
    return b < a ? b : a;
#elif defined(OP_MAX)
    return b > a ? b : a;
#elif defined(OP_SUM)
    return (T)((Wide)a + (Wide)b);
#elif defined(OP_PROD)
    return (T)((Wide)a * (Wide)b);
#elif defined(OP_LAND)
    return (T)(a != 0 && b != 0);
#elif defined(OP_LOR)
    return (T)(a != 0 || b != 0);
#elif defined(OP_LXOR)
    return (T)((a != 0) != (b != 0));
#elif defined(OP_BAND)
    return (T)(a & b);
#elif defined(OP_BOR)
    return (T)(a | b);
#elif defined(OP_BXOR)
    return (T)(a ^ b);
#endif
}

// Member by member where there is padding, which stays as it is.
#if defined(PADDED)
__device__ inline T get(const T *at) {
    T element;
    element.value = at->value;
    element.place = at->place;
    return element;
}
__device__ inline void put(T *at, T element) {
    at->value = element.value;
    at->place = element.place;
}
#else
__device__ inline T get(const T *at) { return *at; }
__device__ inline void put(T *at, T element) { *at = element; }
#endif

#define PER_UNIT (16 / (int)sizeof(T))

// 16 bytes, read and written at once.
union Unit {
    uint4 raw;
    T element[PER_UNIT];
    __device__ Unit() {}
};

// How a range is walked: units from `head` on, single elements before and behind them.
struct Walk {
    Index head, units, rest, first, step;

    // `differs` has a bit of the lowest four where the addresses do not agree.
    __device__ Walk(const void *address, Index differs, Index n) {
        Index phase = (Index)address & 15;
        head = n;
        units = 0;
#if !defined(PADDED)
        if ((differs & 15) == 0 && phase % sizeof(T) == 0) {
            head = (16 - phase) % 16 / sizeof(T);
            if (head > n) head = n;
            units = (n - head) / PER_UNIT;
        }
#endif
        rest = n - units * PER_UNIT;
        first = blockIdx.x * (Index)blockDim.x + threadIdx.x;
        step = gridDim.x * (Index)blockDim.x;
    }
    __device__ Index unit(Index i) const { return head + i * PER_UNIT; }
    __device__ Index single(Index i) const { return i < head ? i : i + units * PER_UNIT; }
};

__device__ inline Index differ(const void *a, const void *b) { return (Index)a ^ (Index)b; }

// `own = other op own` where `before`, else `own = own op other`.
extern "C" __global__ void combine(T *own, const T *other, Index n, int before) {
    Walk walk(own, differ(own, other), n);
    for (Index i = walk.first; i < walk.units; i += walk.step) {
        Unit a, b;
        a.raw = *(const uint4 *)(own + walk.unit(i));
        b.raw = *(const uint4 *)(other + walk.unit(i));
#pragma unroll
        for (int k = 0; k < PER_UNIT; ++k) a.element[k] = before ? f(b.element[k], a.element[k]) : f(a.element[k], b.element[k]);
        *(uint4 *)(own + walk.unit(i)) = a.raw;
    }
    for (Index i = walk.first; i < walk.rest; i += walk.step) {
        Index at = walk.single(i);
        T a = get(own + at), b = get(other + at);
        put(own + at, before ? f(b, a) : f(a, b));
    }
}

#define PEERS 8
struct Peers {
    const T *of[PEERS];
    Index count;
};

// `out = ((p0 op p1) op p2) …`
extern "C" __global__ void combine_all(T *out, Peers peers, Index n) {
    Index differs = 0;
#pragma unroll
    for (int p = 0; p < PEERS; ++p)
        if (p < peers.count) differs |= differ(out, peers.of[p]);
    Walk walk(out, differs, n);
    for (Index i = walk.first; i < walk.units; i += walk.step) {
        Unit a;
        a.raw = *(const uint4 *)(peers.of[0] + walk.unit(i));
#pragma unroll
        for (int p = 1; p < PEERS; ++p) {
            if (p >= peers.count) continue;
            Unit b;
            b.raw = *(const uint4 *)(peers.of[p] + walk.unit(i));
#pragma unroll
            for (int k = 0; k < PER_UNIT; ++k) a.element[k] = f(a.element[k], b.element[k]);
        }
        *(uint4 *)(out + walk.unit(i)) = a.raw;
    }
    for (Index i = walk.first; i < walk.rest; i += walk.step) {
        Index at = walk.single(i);
        T a = get(peers.of[0] + at);
#pragma unroll
        for (int p = 1; p < PEERS; ++p)
            if (p < peers.count) a = f(a, get(peers.of[p] + at));
        put(out + at, a);
    }
}

#if defined(PADDED)
// A copy that leaves padding as it is.
extern "C" __global__ void store(T *own, const T *other, Index n) {
    Walk walk(own, 0, n);
    for (Index i = walk.first; i < n; i += walk.step) put(own + i, get(other + i));
}
#endif
