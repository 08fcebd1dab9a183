// Rotary embedding of queries and keys, fused with the append of keys and values to a paged KV cache.
//
// T is converted to U, the type of the rotated queries and the cache; V is the type of positions and slots. A slot is block · block size +
// offset; tokens with slots outside the cache are not appended. A thread has two vectors of a head: of rotated units, both halves of EACH
// pairs. INTERLEAVED: pairs are adjacent elements; otherwise they are halves.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME rope_append_f32_f16_u32
#define T f32
#define U f16
#define V u32
#define VECTORS 1
#define INTERLEAVED 0
#endif

#include "common/head_strides.cuh"
#include "common/pack.cuh"
#include "common/pdl.cuh"
#include "rope/sincos.cuh"

struct RopeAppend {
    // Of queries, keys and values, and of their destinations; for the cache, "sequence" is the cache block.
    HeadStrides from[3], to[3];
    i32 positions[2], slots[2];
    // Rows are all tokens.
    i32 frequencies, tokens, rows, heads, kv_heads, dim, pairs, blocks, block_keys, padding;
    f64 factor;
};

#define EACH (VECTORS ? 16 / (int)(sizeof(T) > sizeof(U) ? sizeof(T) : sizeof(U)) : 1)

// Without a bound AMD's compiler assumes blocks of 1024 threads and limits registers.
#if defined(__AMDGCN__)
#define BOUNDS __launch_bounds__(256)
#else
#define BOUNDS
#endif

extern "C" __global__ void BOUNDS NAME(const T *q, const T *k, const T *v, U *out, U *k_cache, U *v_cache, const V *positions, const V *slots,
                                const f32 *frequencies, RopeAppend r) {
    pdl_sync();
    // Cosines and sines of the block's rows, shared by all heads.
    extern __shared__ f32 smem[];
    f32 *cosines = smem, *sines = smem + blockDim.y * r.pairs;
    const i32 rotated = r.pairs / EACH, units = (r.dim / EACH + 1) / 2, items = units * (r.heads + 2 * r.kv_heads);
    for (i32 row0 = blockIdx.x * blockDim.y; row0 < r.rows; row0 += gridDim.x * blockDim.y) {
        const i32 row = row0 + threadIdx.y, sequence = row / r.tokens, token = row - sequence * r.tokens;
        i32 kind, head, unit, first, second;
        // With an odd number of vectors, the last unit has one.
        bool both;
        Pack<T, EACH> one, other;
        // Queries, then keys, then values.
        const auto load = [&](i32 item) {
            head = item / units, unit = item - head * units;
            kind = (head >= r.heads) + (head >= r.heads + r.kv_heads);
            head -= kind == 0 ? 0 : r.heads + (kind - 1) * r.kv_heads;
            first = INTERLEAVED || unit >= rotated ? 2 * unit * EACH : unit * EACH;
            second = INTERLEAVED || unit >= rotated ? first + EACH : first + r.pairs;
            both = second < r.dim;
            const HeadStrides &strides = r.from[kind];
            const T *from = (kind == 0 ? q : kind == 1 ? k : v) + strides.at(sequence, token, head);
            one = get<T, EACH>(from + (i64)first * strides.element);
            if (both) other = get<T, EACH>(from + (i64)second * strides.element);
        };
        // The first loads are issued before the angles are computed.
        const i32 item0 = blockIdx.y * blockDim.x + threadIdx.x;
        i64 slot = -1;
        if (row < r.rows) {
            slot = (i64)slots[(i64)sequence * r.slots[0] + (i64)token * r.slots[1]];
            if (item0 < items) load(item0);
        }
        __syncthreads();
        if (row < r.rows) {
            const f32 position = (f32)positions[(i64)sequence * r.positions[0] + (i64)token * r.positions[1]];
            for (i32 pair = threadIdx.x; pair < r.pairs; pair += blockDim.x) {
                f32 sine, cosine;
                sincos_product(position, frequencies[(i64)pair * r.frequencies], sine, cosine);
                cosines[threadIdx.y * r.pairs + pair] = cosine * (f32)r.factor;
                sines[threadIdx.y * r.pairs + pair] = sine * (f32)r.factor;
            }
        }
        __syncthreads();
        if (row >= r.rows) continue;
        const i64 block = slot / r.block_keys, within = slot - block * r.block_keys;
        const bool there = slot >= 0 && block < r.blocks;
        for (i32 item = item0; item < items; item += gridDim.y * blockDim.x) {
            if (item != item0) load(item);
            if (kind > 0 && !there) continue;
            const bool rotate = kind < 2 && unit < rotated;
            Pack<U, EACH> results[2];
#pragma unroll
            for (int i = 0; i < EACH; ++i) {
                // An interleaved pair lies within one vector, unless vectors are single elements.
                const int p = threadIdx.y * r.pairs + unit * EACH + i;
                const bool apart = !INTERLEAVED || EACH == 1;
                const f32 a = apart ? widen(one.at[i]) : widen(2 * i < EACH ? one.at[2 * i % EACH] : other.at[2 * i % EACH]);
                const f32 b = apart ? widen(other.at[i]) : widen(2 * i < EACH ? one.at[(2 * i + 1) % EACH] : other.at[(2 * i + 1) % EACH]);
                const f32 cosine = rotate ? cosines[p] : 1, sine = rotate ? sines[p] : 0;
                const U x = Narrow<U>::from(rotate ? a * cosine - b * sine : a), y = Narrow<U>::from(rotate ? a * sine + b * cosine : b);
                if (apart) results[0].at[i] = x, results[1].at[i] = y;
                else results[2 * i / EACH].at[2 * i % EACH] = x, results[2 * i / EACH].at[(2 * i + 1) % EACH] = y;
            }
            const HeadStrides &strides = r.to[kind];
            U *to = (kind == 0 ? out : kind == 1 ? k_cache : v_cache) + (kind == 0 ? strides.at(sequence, token, head) : strides.at(block, within, head));
            put<U, EACH>(to + (i64)first * strides.element, results[0]);
            if (both) put<U, EACH>(to + (i64)second * strides.element, results[1]);
        }
    }
}
