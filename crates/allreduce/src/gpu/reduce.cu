// Reduction kernels of MPI_Allreduce. Each compilation defines one ELEMENT_… and one OP_… macro.
//
// Results are bitwise identical to the host's: the operand of the lower ranks is the left one, integers wrap, half-precision values are
// computed as floats and rounded once, complex products use no FMA, and unordered comparisons keep the left operand.

typedef unsigned long long Index;
typedef unsigned short Bits;

// Element type. `Wide` is the unsigned type for wrapping integer arithmetic.
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
typedef int Location;
#define PAIR
#elif defined(ELEMENT_DOUBLEINT)
typedef double Value;
typedef int Location;
#define PAIR
#define PADDED
#elif defined(ELEMENT_LONGINT)
typedef long long Value;
typedef int Location;
#define PAIR
#define PADDED
#elif defined(ELEMENT_INTINT)
typedef int Value;
typedef int Location;
#define PAIR
#elif defined(ELEMENT_SHORTINT)
typedef short Value;
typedef int Location;
#define PAIR
#define PADDED
#elif defined(ELEMENT_FLOATFLOAT)
typedef float Value;
typedef float Location;
#define PAIR
#elif defined(ELEMENT_DOUBLEDOUBLE)
typedef double Value;
typedef double Location;
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
// No FMA contraction, as on the host.
__device__ inline float times(float a, float b) { return __fmul_rn(a, b); }
__device__ inline double times(double a, double b) { return __dmul_rn(a, b); }
__device__ inline float plus(float a, float b) { return __fadd_rn(a, b); }
__device__ inline double plus(double a, double b) { return __dadd_rn(a, b); }
#elif defined(PAIR)
struct T { Value value; Location location; };
#endif

// Applies the operator; `a` comes from the lower ranks.
__device__ inline T apply(T a, T b) {
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
    return second || (a.value == b.value && b.location < a.location) ? b : a;
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

// Elements with padding are accessed member by member, so that padding is left unchanged.
#if defined(PADDED)
__device__ inline T load(const T *at) {
    T element;
    element.value = at->value;
    element.location = at->location;
    return element;
}
__device__ inline void store(T *at, T element) {
    at->value = element.value;
    at->location = element.location;
}
#else
__device__ inline T load(const T *at) { return *at; }
__device__ inline void store(T *at, T element) { *at = element; }
#endif

#define PER_VECTOR (16 / (int)sizeof(T))

// A 16-byte vector load or store.
union Vector {
    uint4 raw;
    T element[PER_VECTOR];
    __device__ Vector() {}
};

// Grid-stride iteration over a range: vectors from element `head` on, single elements before and after them.
struct Loop {
    Index head, vectors, rest, first, stride;

    // Vectors are used if the low four bits of `misalignment` are zero, that is, all addresses have the same phase modulo 16.
    __device__ Loop(const void *address, Index misalignment, Index n) {
        Index phase = (Index)address & 15;
        head = n;
        vectors = 0;
#if !defined(PADDED)
        if ((misalignment & 15) == 0 && phase % sizeof(T) == 0) {
            head = (16 - phase) % 16 / sizeof(T);
            if (head > n) head = n;
            vectors = (n - head) / PER_VECTOR;
        }
#endif
        rest = n - vectors * PER_VECTOR;
        first = blockIdx.x * (Index)blockDim.x + threadIdx.x;
        stride = gridDim.x * (Index)blockDim.x;
    }
    __device__ Index vector(Index i) const { return head + i * PER_VECTOR; }
    __device__ Index single(Index i) const { return i < head ? i : i + vectors * PER_VECTOR; }
};

__device__ inline Index address_difference(const void *a, const void *b) { return (Index)a ^ (Index)b; }

// inout = input op inout if `input_first`, otherwise inout = inout op input.
extern "C" __global__ void reduce(T *inout, const T *input, Index n, int input_first) {
    Loop loop(inout, address_difference(inout, input), n);
    for (Index i = loop.first; i < loop.vectors; i += loop.stride) {
        Vector a, b;
        a.raw = *(const uint4 *)(inout + loop.vector(i));
        b.raw = *(const uint4 *)(input + loop.vector(i));
#pragma unroll
        for (int k = 0; k < PER_VECTOR; ++k) a.element[k] = input_first ? apply(b.element[k], a.element[k]) : apply(a.element[k], b.element[k]);
        *(uint4 *)(inout + loop.vector(i)) = a.raw;
    }
    for (Index i = loop.first; i < loop.rest; i += loop.stride) {
        Index at = loop.single(i);
        T a = load(inout + at), b = load(input + at);
        store(inout + at, input_first ? apply(b, a) : apply(a, b));
    }
}

#define MAX_PEERS 8
struct Peers {
    const T *buffer[MAX_PEERS];
    Index count;
};

// out = ((p0 op p1) op p2) …
extern "C" __global__ void reduce_peers(T *out, Peers peers, Index n) {
    Index misalignment = 0;
#pragma unroll
    for (int p = 0; p < MAX_PEERS; ++p)
        if (p < peers.count) misalignment |= address_difference(out, peers.buffer[p]);
    Loop loop(out, misalignment, n);
    for (Index i = loop.first; i < loop.vectors; i += loop.stride) {
        Vector a;
        a.raw = *(const uint4 *)(peers.buffer[0] + loop.vector(i));
#pragma unroll
        for (int p = 1; p < MAX_PEERS; ++p) {
            if (p >= peers.count) continue;
            Vector b;
            b.raw = *(const uint4 *)(peers.buffer[p] + loop.vector(i));
#pragma unroll
            for (int k = 0; k < PER_VECTOR; ++k) a.element[k] = apply(a.element[k], b.element[k]);
        }
        *(uint4 *)(out + loop.vector(i)) = a.raw;
    }
    for (Index i = loop.first; i < loop.rest; i += loop.stride) {
        Index at = loop.single(i);
        T a = load(peers.buffer[0] + at);
#pragma unroll
        for (int p = 1; p < MAX_PEERS; ++p)
            if (p < peers.count) a = apply(a, load(peers.buffer[p] + at));
        store(out + at, a);
    }
}

#if defined(PADDED)
// Copies elements and leaves padding unchanged.
extern "C" __global__ void copy_elements(T *inout, const T *input, Index n) {
    Loop loop(inout, 0, n);
    for (Index i = loop.first; i < n; i += loop.stride) store(inout + i, load(input + i));
}
#endif
