// Appends keys and values to a KV cache, converting T to U.
//
// A token's position is `start` plus its index, or `positions` plus its index; with `table`, the position is mapped to a cache block.
// OP_append_slots: `positions` are slots (block · block size + offset). Tokens outside the cache are skipped.

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

struct Append {
    // For a paged cache, "sequence" is the cache block.
    HeadStrides k, v, k_cache, v_cache;
    i32 positions[2], table[2];
    // Rows are all tokens. Of the cache: sequences or blocks, keys of each, and table columns.
    i32 tokens, rows, blocks, block_keys, table_blocks, heads, dim, padding;
    i64 start;
};

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
#if defined(OP_append_slots)
        const i64 slot = (i64)positions[(i64)sequence * a.positions[0] + (i64)token * a.positions[1]];
        if (slot < 0) continue;
        const i64 block = slot / a.block_keys, within = slot - block * a.block_keys;
#else
        const i64 position = (positions ? (i64)positions[(i64)sequence * a.positions[0]] : 0) + a.start + token;
        if (position < 0) continue;
        i64 block = sequence, within = position;
        if (table) {
            const i64 index = position / a.block_keys;
            if (index >= a.table_blocks) continue;
            block = table[(i64)sequence * a.table[0] + index * a.table[1]];
            within = position - index * a.block_keys;
        }
#endif
        if (block < 0 || block >= a.blocks || within >= a.block_keys) continue;
        for (i32 item = threadIdx.x; item < items; item += blockDim.x) {
            const i32 head = item / packs;
            const i64 element = (item - head * packs) * EACH;
            if (item >= (i32)blockDim.x) load(item);
            store(k_cache + a.k_cache.at(block, within, head) + element * a.k_cache.element, key);
            store(v_cache + a.v_cache.at(block, within, head) + element * a.v_cache.element, value);
        }
    }
}
