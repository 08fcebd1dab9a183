// Appends keys and values to a KV cache, converting T to U.
//
// A token's position is `start` plus its index, or `positions` plus its index; with `table`, the position is mapped to a cache block.
// OP_append_slots: `positions` are slots (block · block size + offset). Tokens outside the cache are skipped. With CODES, the cache is
// quantized (see `codes.cuh`).

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME append_f32_f32_i32
#define T f32
#define U f32
#define V i32
#define VECTORS 1
#endif

#include "common/head_strides.cuh"
#include "common/pack.cuh"
#include "common/pdl.cuh"
#if defined(CODES)
#include "attention/codes.cuh"
#endif

struct Append {
    // For a paged cache, "sequence" is the cache block.
    HeadStrides k, v, k_cache, v_cache;
    i32 positions[2], table[2];
    // Rows are all tokens. Of the cache: sequences or blocks, keys of each, and table columns.
    i32 tokens, rows, blocks, block_keys, table_blocks, heads, dim, padding;
    i64 start;
};

// Returns whether a token's place is in the cache.
__device__ inline bool locate(const V *positions, const i32 *table, const Append &a, i32 sequence, i32 token, i64 &block, i64 &within) {
#if defined(OP_append_slots)
    const i64 slot = (i64)positions[(i64)sequence * a.positions[0] + (i64)token * a.positions[1]];
    if (slot < 0) return false;
    block = slot / a.block_keys, within = slot - block * a.block_keys;
#else
    const i64 position = (positions ? (i64)positions[(i64)sequence * a.positions[0]] : 0) + a.start + token;
    if (position < 0) return false;
    block = sequence, within = position;
    if (table) {
        const i64 index = position / a.block_keys;
        if (index >= a.table_blocks) return false;
        block = table[(i64)sequence * a.table[0] + index * a.table[1]];
        within = position - index * a.block_keys;
    }
#endif
    return block >= 0 && block < a.blocks && within < a.block_keys;
}

#if defined(CODES)

// The largest magnitude of 32 lanes; NaN if one is NaN.
__device__ inline f32 largest_of(f32 x) {
    u32 bits = __float_as_uint(x) & 0x7fffffffu;
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) {
        const u32 other = __shfl_xor_sync(0xffffffffu, bits, apart, 32);
        bits = other > bits ? other : bits;
    }
    return __uint_as_float(bits);
}

__device__ inline f32 element_of(const T *from, i32 stride, i32 column, i32 dim) {
    return column < dim ? (f32)widen(from[(i64)column * stride]) : 0;
}

// The scale of a group: at most f16's largest number, and NaN if a value is not finite.
__device__ inline f32 scale_of(f32 largest) { return fminf(largest / LARGEST_CODE, 65504.0f) + (largest - largest); }

// Quantizes a head with 32 lanes.
__device__ inline void quantize(const T *from, i32 stride, Code *to, i32 code_stride, f16 *scales, i32 dim) {
    const int lane = threadIdx.x;
#if CODES == 1
    for (i32 start = 0; start < dim; start += 32) {
        const i32 column = start + lane;
        const f32 x = element_of(from, stride, column, dim), scale = scale_of(largest_of(x));
        // As in GGUF, codes are of the scale before it is rounded.
        const f32 code = scale > 0 ? fminf(fmaxf(rintf(x / scale), -LARGEST_CODE), LARGEST_CODE) : 0;
        const Code result = {(u8)(signed char)code};
        if (column < dim) to[(i64)column * code_stride] = result;
        if (lane == 0) scales[start / 32] = Narrow<f16>::from(scale);
    }
#else
    f32 largest = 0;
    for (i32 start = 0; start < dim; start += 32) {
        const f32 some = largest_of(element_of(from, stride, start + lane, dim));
        largest = some > largest || some != some ? some : largest;
    }
    // At least the smallest normal f16, so that rounding the scale does not cost precision.
    const f32 wanted = scale_of(largest);
    const f16 scale = Narrow<f16>::from(wanted < 6.103515625e-5f ? 6.103515625e-5f : wanted);
    for (i32 column = lane; column < dim; column += 32)
        to[(i64)column * code_stride] = Narrow<Code>::from(element_of(from, stride, column, dim) / widen(scale));
    if (lane == 0) scales[0] = scale;
#endif
}

// 32 lanes for each head of a key or value.
extern "C" __global__ void NAME(const T *k, const T *v, Code *k_cache, Code *v_cache, f16 *k_scales, f16 *v_scales, const V *positions,
                                const i32 *table, Append a, CodeScales scales) {
    pdl_sync();
    const i64 items = (i64)a.rows * a.heads * 2;
    for (i64 item = (i64)blockIdx.x * blockDim.y + threadIdx.y; item < items; item += (i64)gridDim.x * blockDim.y) {
        const i32 row = item / (2 * a.heads), rest = item - (i64)row * 2 * a.heads, head = rest / 2;
        const i32 sequence = row / a.tokens, token = row - sequence * a.tokens;
        i64 block, within;
        if (!locate(positions, table, a, sequence, token, block, within)) continue;
        if (rest % 2 == 0)
            quantize(k + a.k.at(sequence, token, head), a.k.element, k_cache + a.k_cache.at(block, within, head), a.k_cache.element,
                     k_scales + scales.k.at(block, within, head), a.dim);
        else
            quantize(v + a.v.at(sequence, token, head), a.v.element, v_cache + a.v_cache.at(block, within, head), a.v_cache.element,
                     v_scales + scales.v.at(block, within, head), a.dim);
    }
}

#else

#define EACH (VECTORS ? 16 / (int)(sizeof(T) > sizeof(U) ? sizeof(T) : sizeof(U)) : 1)

__device__ inline void store(U *to, const Pack<T, EACH> &pack) {
    Pack<U, EACH> result;
#pragma unroll
    for (int i = 0; i < EACH; ++i) result.at[i] = convert<U>(pack.at[i]);
    put<U, EACH>(to, result);
}

extern "C" __global__ void NAME(const T *k, const T *v, U *k_cache, U *v_cache, const V *positions, const i32 *table, Append a) {
    pdl_sync();
    const i32 packs = a.dim / EACH, items = a.heads * packs;
    for (i32 row = blockIdx.x * blockDim.y + threadIdx.y; row < a.rows; row += gridDim.x * blockDim.y) {
        const i32 sequence = row / a.tokens, token = row - sequence * a.tokens;
        Pack<T, EACH> key, value;
        const auto load = [&](i32 item) {
            const i32 head = item / packs;
            const i64 element = (item - head * packs) * EACH;
            key = get<T, EACH>(k + a.k.at(sequence, token, head) + element * a.k.element);
            value = get<T, EACH>(v + a.v.at(sequence, token, head) + element * a.v.element);
        };
        // The first load does not wait for the position.
        if ((i32)threadIdx.x < items) load(threadIdx.x);
        i64 block, within;
        if (!locate(positions, table, a, sequence, token, block, within)) continue;
        for (i32 item = threadIdx.x; item < items; item += blockDim.x) {
            const i32 head = item / packs;
            const i64 element = (item - head * packs) * EACH;
            if (item >= (i32)blockDim.x) load(item);
            store(k_cache + a.k_cache.at(block, within, head) + element * a.k_cache.element, key);
            store(v_cache + a.v_cache.at(block, within, head) + element * a.v_cache.element, value);
        }
    }
}

#endif
