// New keys and values into a cache, at the places of their tokens; T becomes U on the way.
//
// A token's place is `start` and its number, or what `places` says; with `table` it is one of a sequence's, whose block the table knows.
// OP_append_slots: `places` are slots of the whole pool, block by block. What is nowhere is left out.

struct Append {
    // Steps of the sources: sequence, token, head, element; of the caches: sequence or block, key, head, element.
    i64 k[4], v[4], k_cache[4], v_cache[4];
    i64 places[2], table[2];
    i64 start, tokens, rows;
    // Of the cache: sequences or blocks, and keys of each; blocks of a sequence.
    i64 blocks, block_keys, table_blocks;
    i32 heads, dim;
};

#define EACH (VECTORS ? 16 / (int)(sizeof(T) > sizeof(U) ? sizeof(T) : sizeof(U)) : 1)

__device__ inline void move(const T *from, U *to) {
    const Pack<T, EACH> pack = get<T, EACH>(from);
    Pack<U, EACH> result;
#pragma unroll
    for (int i = 0; i < EACH; ++i) result.at[i] = convert<U>(pack.at[i]);
    put<U, EACH>(to, result);
}

extern "C" __global__ void NAME(const T *k, const T *v, U *k_cache, U *v_cache, const V *places, const i32 *table, Append a) {
    const i32 pieces = a.dim / EACH, items = a.heads * pieces;
    for (i64 row = (i64)blockIdx.x * blockDim.y + threadIdx.y; row < a.rows; row += (i64)gridDim.x * blockDim.y) {
        const i64 sequence = row / a.tokens, token = row - sequence * a.tokens;
#if defined(OP_append_slots)
        const i64 slot = (i64)places[sequence * a.places[0] + token * a.places[1]];
        if (slot < 0) continue;
        const i64 block = slot / a.block_keys, within = slot - block * a.block_keys;
#else
        const i64 place = (places ? (i64)places[sequence * a.places[0]] : 0) + a.start + token;
        if (place < 0) continue;
        i64 block = sequence, within = place;
        if (table) {
            const i64 index = place / a.block_keys;
            if (index >= a.table_blocks) continue;
            block = table[sequence * a.table[0] + index * a.table[1]];
            within = place - index * a.block_keys;
        }
#endif
        if (block < 0 || block >= a.blocks || within >= a.block_keys) continue;
        for (i32 item = threadIdx.x; item < items; item += blockDim.x) {
            const i32 head = item / pieces;
            const i64 element = (item - head * pieces) * EACH;
            move(k + sequence * a.k[0] + token * a.k[1] + head * a.k[2] + element * a.k[3],
                 k_cache + block * a.k_cache[0] + within * a.k_cache[1] + head * a.k_cache[2] + element * a.k_cache[3]);
            move(v + sequence * a.v[0] + token * a.v[1] + head * a.v[2] + element * a.v[3],
                 v_cache + block * a.v_cache[0] + within * a.v_cache[1] + head * a.v_cache[2] + element * a.v_cache[3]);
        }
    }
}
