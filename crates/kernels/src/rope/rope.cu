// Rotary position embedding: rotates pairs of elements by an angle proportional to the token's position.
//
// T is the elements' type, U that of the positions, V that of the angles: OP_rope takes frequencies, OP_rope_table cosines and sines by
// position and pair. A thread has PAIRS pairs of HEADS heads; blocks in y share a row. Elements after the rotated ones are copied.
// INTERLEAVED: pairs are adjacent elements; otherwise they are halves.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME rope_f32_i32_f32
#define T f32
#define U i32
#define V f32
#define VECTORS 1
#define INTERLEAVED 0
#endif

#include "common/head_strides.cuh"
#include "common/pack.cuh"
#include "common/pdl.cuh"
#include "rope/sincos.cuh"

struct Rope {
    HeadStrides x, out;
    // Strides: of positions by sequence and token; of the tables by position and pair.
    i32 positions[2], angles[2], sin_strides[2];
    // Rows are all tokens. `rest` elements are only copied.
    i32 tokens, rows, table_rows, heads, pairs, rest, start, padding;
    f64 factor;
};

#define HEADS 2
#define EACH (VECTORS ? 16 / (int)sizeof(T) : 1)
#define PAIRS EACH
typedef Traits<T>::Math Math;
typedef Packed<T, EACH> Elements;
typedef Access<sizeof(T) * EACH>::Type Raw;

__device__ inline void angles_of(const Rope &r, const V *angles, const V *more, i64 position, i32 pair, Math &sine, Math &cosine) {
#if defined(OP_rope_table)
    const i64 row = position < 0 ? 0 : position < r.table_rows ? position : r.table_rows - 1;
    cosine = (Math)widen(angles[row * r.angles[0] + (i64)pair * r.angles[1]]);
    sine = (Math)widen(more[row * r.sin_strides[0] + (i64)pair * r.sin_strides[1]]);
#else
    sincos_product((Math)position, angles[(i64)pair * r.angles[1]], sine, cosine);
    cosine *= (Math)r.factor;
    sine *= (Math)r.factor;
#endif
}

extern "C" __global__ void NAME(const T *x, T *out, const U *positions, const V *angles, const V *more, Rope r) {
    pdl_sync();
    // Cosines and sines of the block's rows, shared by all heads.
    extern __shared__ f64 smem[];
    Math *cosines = (Math *)smem, *sines = cosines + blockDim.y * r.pairs;
    const i32 rotated = r.pairs / PAIRS, units = rotated + r.rest / EACH, items = units * ((r.heads + HEADS - 1) / HEADS);
    for (i32 row0 = blockIdx.x * blockDim.y; row0 < r.rows; row0 += gridDim.x * blockDim.y) {
        const i32 row = row0 + threadIdx.y, sequence = row / r.tokens, token = row - sequence * r.tokens;
        // All loads are issued before the first is used, and before the angles are computed.
        Elements elements[HEADS][2];
        const auto load = [&](i32 item) {
            const i32 chunk = item / units, unit = item - chunk * units, head0 = chunk * HEADS, pair0 = unit * PAIRS;
            if (row >= r.rows || item >= items || unit >= rotated) return;
            const T *from = x + r.x.at(sequence, token, head0);
            const i64 first = INTERLEAVED ? 2 * pair0 : pair0, second = INTERLEAVED ? first + EACH : r.pairs + pair0;
#pragma unroll
            for (int h = 0; h < HEADS; ++h) {
                if (h >= r.heads - head0) continue;
                elements[h][0].raw = *(const Raw *)(from + (i64)h * r.x.head + first * r.x.element);
                elements[h][1].raw = *(const Raw *)(from + (i64)h * r.x.head + second * r.x.element);
            }
        };
        const i32 item0 = blockIdx.y * blockDim.x + threadIdx.x;
        load(item0);
        __syncthreads();
        if (row < r.rows) {
            const i64 position = r.start + (positions ? (i64)positions[(i64)sequence * r.positions[0] + (i64)token * r.positions[1]] : token);
            for (i32 pair = threadIdx.x; pair < r.pairs; pair += blockDim.x) {
                const i32 at = threadIdx.y * r.pairs + pair;
                angles_of(r, angles, more, position, pair, sines[at], cosines[at]);
            }
        }
        __syncthreads();
        if (row >= r.rows) continue;
        for (i32 item = item0; item < items; item += gridDim.y * blockDim.x) {
            const i32 chunk = item / units, unit = item - chunk * units, head0 = chunk * HEADS;
            const T *from = x + r.x.at(sequence, token, head0);
            T *to = out + r.out.at(sequence, token, head0);
            const i32 left = r.heads - head0 < HEADS ? r.heads - head0 : HEADS;
            if (unit >= rotated) {
                const i64 at = 2 * r.pairs + (unit - rotated) * EACH;
                for (int h = 0; h < left; ++h) {
                    put<T, EACH>(to + (i64)h * r.out.head + at * r.out.element, get<T, EACH>(from + (i64)h * r.x.head + at * r.x.element));
                }
                continue;
            }
            const i32 pair0 = unit * PAIRS;
            const i64 first = INTERLEAVED ? 2 * pair0 : pair0, second = INTERLEAVED ? first + EACH : r.pairs + pair0;
            if (item != item0) load(item);
            const Math *cosine = cosines + threadIdx.y * r.pairs + pair0, *sine = sines + threadIdx.y * r.pairs + pair0;
#pragma unroll
            for (int h = 0; h < HEADS; ++h) {
                if (h >= left) continue;
#pragma unroll
                for (int p = 0; p < PAIRS; ++p) {
                    T &one = INTERLEAVED ? elements[h][2 * p / EACH].pack.at[2 * p % EACH] : elements[h][0].pack.at[p];
                    T &other = INTERLEAVED ? elements[h][(2 * p + 1) / EACH].pack.at[(2 * p + 1) % EACH] : elements[h][1].pack.at[p];
                    const Math a = widen(one), b = widen(other);
                    one = Narrow<T>::from(a * cosine[p] - b * sine[p]);
                    other = Narrow<T>::from(a * sine[p] + b * cosine[p]);
                }
                store_raw((Raw *)(to + (i64)h * r.out.head + first * r.out.element), elements[h][0].raw);
                store_raw((Raw *)(to + (i64)h * r.out.head + second * r.out.element), elements[h][1].raw);
            }
        }
    }
}
