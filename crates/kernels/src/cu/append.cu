// New keys and values into a cache, at the places of their tokens; T becomes U on the way.
//
// A token's place is `start` and its number, or what `places` says; with `table` it is one of a sequence's, whose block the table knows.
// OP_append_slots: `places` are slots of the whole pool, block by block. What is nowhere is left out.

struct Append {
    // In a pool a block is a sequence.
    Steps k, v, k_cache, v_cache;
    i32 places[2], table[2];
    // Rows are all tokens. Of the cache: sequences or blocks, and keys of each; then blocks of a sequence.
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

extern "C" __global__ void NAME(const T *k, const T *v, U *k_cache, U *v_cache, const V *places, const i32 *table, Append a) {
    take_turn();
    const i32 pieces = a.dim / EACH, items = a.heads * pieces;
    for (i32 row = blockIdx.x * blockDim.y + threadIdx.y; row < a.rows; row += gridDim.x * blockDim.y) {
        const i32 sequence = row / a.tokens, token = row - sequence * a.tokens;
        Pack<T, EACH> key, value;
        const auto load = [&](i32 item) {
            const i32 head = item / pieces;
            const i64 element = (item - head * pieces) * EACH;
            key = get<T, EACH>(k + a.k.at(sequence, token, head) + element * a.k.element);
            value = get<T, EACH>(v + a.v.at(sequence, token, head) + element * a.v.element);
        };
        // The first need not wait for their place to be known.
        if ((i32)threadIdx.x < items) load(threadIdx.x);
#if defined(OP_append_slots)
        const i64 slot = (i64)places[(i64)sequence * a.places[0] + (i64)token * a.places[1]];
        if (slot < 0) continue;
        const i64 block = slot / a.block_keys, within = slot - block * a.block_keys;
#else
        const i64 place = (places ? (i64)places[(i64)sequence * a.places[0]] : 0) + a.start + token;
        if (place < 0) continue;
        i64 block = sequence, within = place;
        if (table) {
            const i64 index = place / a.block_keys;
            if (index >= a.table_blocks) continue;
            block = table[(i64)sequence * a.table[0] + index * a.table[1]];
            within = place - index * a.block_keys;
        }
#endif
        if (block < 0 || block >= a.blocks || within >= a.block_keys) continue;
        for (i32 item = threadIdx.x; item < items; item += blockDim.x) {
            const i32 head = item / pieces;
            const i64 element = (item - head * pieces) * EACH;
            if (item >= (i32)blockDim.x) load(item);
            store(k_cache + a.k_cache.at(block, within, head) + element * a.k_cache.element, key);
            store(v_cache + a.v_cache.at(block, within, head) + element * a.v_cache.element, value);
        }
    }
}
