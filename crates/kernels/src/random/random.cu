// Random elements: element i of a call takes its words from block i / EACH of Philox, wherever it is computed.
//
// All but normal f64 consist of integer operations and operations that IEEE 754 rounds, so every device has the same bits. The CPU
// computes the same in `tensor/src/cpu/random.rs`.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME normal_f32
#define OP_normal
#define T f32
#endif

#include "common/dims.cuh"
#include "common/math.cuh"
#include "common/pack.cuh"
#include "common/philox.cuh"

// Parameters of a distribution.
struct Draw { f64 floats[4]; u64 ints[2]; };

__device__ inline u64 pair(u32 low, u32 high) { return (u64)high << 32 | low; }

#if defined(OP_uniform)

struct Distribution {
    typedef Traits<T>::Math Math;
    static const int EACH = sizeof(T) == 8 ? 2 : 4;
    Math low, scale, first, last;

    __device__ Distribution(const Draw &d)
        : low((Math)d.floats[0]), scale((Math)d.floats[1]), first((Math)d.floats[2]), last((Math)d.floats[3]) {}
    // Rounding must not leave the interval.
    __device__ T of(Math unit) const {
        const Math x = rounded_product(unit, scale) + low;
        return Narrow<T>::from(x < first ? first : x > last ? last : x);
    }
    __device__ void draw(uint4 words, T *to) const {
        if constexpr (EACH == 2) {
            to[0] = of((Math)(pair(words.x, words.y) >> 11) * (Math)1.1102230246251565e-16);
            to[1] = of((Math)(pair(words.z, words.w) >> 11) * (Math)1.1102230246251565e-16);
        } else {
            const u32 each[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
            for (int e = 0; e < 4; ++e) to[e] = of((Math)(each[e] >> 8) * (Math)5.9604645e-8);
        }
    }
};

#elif defined(OP_normal)

// Box-Muller: a radius of the first word and an angle of the second.
__device__ inline void box_muller(u32 first, u32 second, f32 &x, f32 &y) {
    // (first + ½) / 2^32 = 2^exponent · (1 + t), 1 + t within [√½, √2].
    const u32 bits = __float_as_uint(fma((f32)first, 2.3283064e-10f, 1.1641532e-10f)), whole = (bits - 0x3f3504f3u) & 0xff800000u;
    const f32 exponent = (f32)((i32)whole >> 23), t = __uint_as_float(bits - whole) - 1, square = t * t;
    // ln(1 + t) = t - t² / 2 + t³ · p
    f32 p = fma(0.06746601f, t, -0.11675641f);
    p = fma(p, t, 0.11888175f);
    p = fma(p, t, -0.124055915f);
    p = fma(p, t, 0.14219551f);
    p = fma(p, t, -0.16667996f);
    p = fma(p, t, 0.20002119f);
    p = fma(p, t, -0.2500001f);
    p = fma(p, t, 0.33333313f);
    const f32 rest = fma(square, -0.5f, fma(exponent, -0.00021219444f, rounded_product(rounded_product(t, square), p)));
    const f32 radius = sqrt(-2 * fma(exponent, 0.693359375f, t + rest));
    // The angle in quarter turns: the nearest integer, and what is left.
    const u32 quarter = (second + 0x20000000u) >> 30;
    const f32 left = (f32)(i32)(second - (quarter << 30));
    const f32 angle = fma(left, 1.4629181e-9f, rounded_product(left, -4.0709403e-17f)), u = rounded_product(angle, angle);
    const f32 sine = fma(fma(fma(u, -0.00019517298f, 0.008332178f), u, -0.16666655f), rounded_product(angle, u), angle);
    const f32 cosine = fma(fma(fma(fma(u, 2.443845e-5f, -0.0013887368f), u, 0.041666646f), u, -0.5f), u, 1.0f);
    const f32 c = quarter & 1 ? sine : cosine, s = quarter & 1 ? cosine : sine;
    x = rounded_product(radius, (quarter + 1) & 2 ? -c : c);
    y = rounded_product(radius, quarter & 2 ? -s : s);
}
__device__ inline void box_muller(u64 first, u64 second, f64 &x, f64 &y) {
    const f64 radius = sqrt(-2 * log((f64)((first >> 11) + 1) * 1.1102230246251565e-16));
    const u64 quarter = (second + (1ull << 61)) >> 62;
    const f64 angle = (f64)(i64)(second - (quarter << 62)) * 3.4061215800865545e-19, sine = sin(angle), cosine = cos(angle);
    const f64 c = quarter & 1 ? sine : cosine, s = quarter & 1 ? cosine : sine;
    x = radius * ((quarter + 1) & 2 ? -c : c);
    y = radius * (quarter & 2 ? -s : s);
}

struct Distribution {
    typedef Traits<T>::Math Math;
    static const int EACH = sizeof(T) == 8 ? 2 : 4;
    Math mean, deviation;

    __device__ Distribution(const Draw &d) : mean((Math)d.floats[0]), deviation((Math)d.floats[1]) {}
    __device__ T of(Math normal) const { return Narrow<T>::from(fma(normal, deviation, mean)); }
    __device__ void draw(uint4 words, T *to) const {
        Math x, y;
        if constexpr (EACH == 2) {
            box_muller(pair(words.x, words.y), pair(words.z, words.w), x, y);
        } else {
            box_muller(words.z, words.w, x, y);
            to[2] = of(x);
            to[3] = of(y);
            box_muller(words.x, words.y, x, y);
        }
        to[0] = of(x);
        to[1] = of(y);
    }
};

#elif defined(OP_integers)

struct Distribution {
    static const int EACH = 2;
    // A range of 0 is 2^64.
    u64 low, range;

    __device__ Distribution(const Draw &d) : low(d.ints[0]), range(d.ints[1]) {}
    __device__ T of(u64 bits) const { return (T)(low + (range ? __umul64hi(bits, range) : bits)); }
    __device__ void draw(uint4 words, T *to) const {
        to[0] = of(pair(words.x, words.y));
        to[1] = of(pair(words.z, words.w));
    }
};

#elif defined(OP_bernoulli)

// T is an unsigned integer of the element's size.
struct Distribution {
    static const int EACH = 4;
    // Words below the threshold, which may be 2^32, give the bits of 1.
    u64 threshold;
    T one;

    __device__ Distribution(const Draw &d) : threshold(d.ints[0]), one((T)d.ints[1]) {}
    __device__ T of(u32 word) const { return word < threshold ? one : (T)0; }
    __device__ void draw(uint4 words, T *to) const {
        to[0] = of(words.x);
        to[1] = of(words.y);
        to[2] = of(words.z);
        to[3] = of(words.w);
    }
};

#endif

// Elements of a block, of a vector of 16 bytes, and of a thread.
constexpr int EACH = Distribution::EACH, VECTOR = 16 / sizeof(T), COUNT = max_of(EACH, VECTOR);

// Aligned vectors.
extern "C" __global__ void __launch_bounds__(256) KERNEL_NAME(NAME, _contiguous)(T *out, Philox at, Draw draw, u64 n) {
    const Distribution distribution(draw);
    const u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i * COUNT < n; i += step) {
        T elements[COUNT];
#pragma unroll
        for (int e = 0; e < COUNT; e += EACH) distribution.draw(philox(at, (i * COUNT + e) / EACH), elements + e);
        const u64 left = n - i * COUNT;
        T *const to = out + i * COUNT;
        if (left >= COUNT) {
#pragma unroll
            for (int first = 0; first < COUNT; first += VECTOR) {
                Pack<T, VECTOR> pack;
#pragma unroll
                for (int e = 0; e < VECTOR; ++e) pack.at[e] = elements[first + e];
                put<T, VECTOR>(to + first, pack);
            }
        } else {
#pragma unroll
            for (int e = 0; e < COUNT; ++e) {
                if (e < left) to[e] = elements[e];
            }
        }
    }
}

// Any layout. Operands: a contiguous tensor, whose order elements are counted in, and the result.
extern "C" __global__ void __launch_bounds__(256) KERNEL_NAME(NAME, _strided)(T *out, Philox at, Draw draw, Dims dims) {
    const Distribution distribution(draw);
    const u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 block = (u64)blockIdx.x * blockDim.x + threadIdx.x; block * EACH < dims.n; block += step) {
        T elements[EACH];
        distribution.draw(philox(at, block), elements);
#pragma unroll
        for (int e = 0; e < EACH; ++e) {
            if (block * EACH + e >= dims.n) break;
            u64 offsets[2] = {0, 0};
            locate<u64>(block * EACH + e, dims, offsets, 2);
            out[offsets[1]] = elements[e];
        }
    }
}
