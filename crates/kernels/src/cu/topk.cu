// The first of chunks of rows, in order.
//
// A chunk lies in registers. The k-th of the threads' own first keys bounds what can be among the first k: few others are within the bound,
// and their places are found by comparing each with each. Where many are, the bound is made exact, bit by bit.

#define CAP (2 * THREADS)

#if defined(__AMDGCN__) && WAVE == 64
__device__ inline u32 votes(bool vote) { return __popcll(__ballot_sync(0xffffffffu, vote)); }
#else
__device__ inline u32 votes(bool vote) { return __popc(__ballot_sync(0xffffffffu, vote)); }
#endif

__device__ inline u32 sum_of_block(u32 x, u32 *sums) {
#pragma unroll
    for (int by = WAVE / 2; by > 0; by /= 2) x += __shfl_xor_sync(0xffffffffu, x, by);
    if (threadIdx.x % WAVE == 0) sums[threadIdx.x / WAVE] = x;
    __syncthreads();
    x = 0;
#pragma unroll
    for (int w = 0; w < WAVES; ++w) x += sums[w];
    __syncthreads();
    return x;
}

extern "C" __global__ void __launch_bounds__(THREADS) SYMBOL(NAME, _chunk)(CALL) {
    MAKE_CALL;
    __shared__ Key keys_room[CAP], bound_room;
    __shared__ u32 sums[WAVES], found;
    __shared__ u16 at_room[CAP];
    const u32 number = blockIdx.x / o.chunks, chunk = blockIdx.x - number * o.chunks;
    const Row row(number, dims);
    const u64 start = (u64)chunk * TILE;
    const u32 n = o.n - start < TILE ? (u32)(o.n - start) : TILE, k = o.keep < n ? o.keep : n;

    Key keys[ITEMS], own = LAST;
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        const u32 p = i * THREADS + threadIdx.x;
        keys[i] = p < n ? call.key(o, row, number, start + p) : LAST;
    }
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) own = keys[i] < own ? keys[i] : own;
    keys_room[threadIdx.x] = own;
    if (threadIdx.x == 0) found = 0;
    __syncthreads();
    if (threadIdx.x < WAVE) {
        // The smallest bound, as far as it takes to tell k of them from the others.
        Key firsts[WAVES], bound = LAST;
#pragma unroll
        for (int w = 0; w < WAVES; ++w) firsts[w] = keys_room[w * WAVE + threadIdx.x];
#pragma unroll 1
        for (int bit = KEY_BITS - 1; bit >= 0 && k <= THREADS; --bit) {
            const Key less = bound ^ (Key)1 << bit;
            u32 within = 0;
#pragma unroll
            for (int w = 0; w < WAVES; ++w) within += votes(firsts[w] <= less);
            if (within >= k) bound = less;
            if (within == k) break;
        }
        if (threadIdx.x == 0) bound_room = bound;
    }
    __syncthreads();
    Key bound = bound_room;
    u32 last = TILE;
    __syncthreads();
    // Twice at most: the second time the bound is exact.
    for (;;) {
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const u32 p = i * THREADS + threadIdx.x;
            if (keys[i] <= bound && p < n && (keys[i] < bound || p < last)) {
                const u32 slot = atomicAdd(&found, 1u);
                if (slot < CAP) {
                    keys_room[slot] = keys[i];
                    at_room[slot] = (u16)p;
                }
            }
        }
        __syncthreads();
        if (found <= CAP) break;
        // The k-th key, then how far its equals belong.
        bound = LAST;
#pragma unroll 1
        for (int bit = KEY_BITS - 1; bit >= 0; --bit) {
            const Key less = bound ^ (Key)1 << bit;
            u32 within = 0;
#pragma unroll
            for (int i = 0; i < ITEMS; ++i) within += keys[i] <= less && i * THREADS + threadIdx.x < n;
            if (sum_of_block(within, sums) >= k) bound = less;
        }
        last = 2 * TILE - 1;
#pragma unroll 1
        for (u32 bit = TILE; bit > 0; bit /= 2) {
            const u32 less = last ^ bit;
            u32 within = 0;
#pragma unroll
            for (int i = 0; i < ITEMS; ++i) {
                const u32 p = i * THREADS + threadIdx.x;
                within += p < n && (keys[i] < bound || (keys[i] == bound && p < less));
            }
            if (sum_of_block(within, sums) >= k) last = less;
        }
        if (threadIdx.x == 0) found = 0;
        __syncthreads();
    }
    const u32 all = found;
    for (u32 c = threadIdx.x; c < all; c += THREADS) {
        const Key key = keys_room[c];
        const u32 at = at_room[c];
        u32 before = 0;
#pragma unroll 4
        for (u32 other = 0; other < all; ++other) {
            const Key there = keys_room[other];
            before += there < key || (there == key && at_room[other] < at);
        }
        if (before < k) call.keep(o, row, number, chunk, before, key, call.at(o, number, start + at));
    }
}
