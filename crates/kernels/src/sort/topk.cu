// The first k of chunks of rows, in order.
//
// A chunk is in registers. The k-th of the minima of thread groups bounds the first k: few elements are within the bound, and their ranks
// come from comparing all pairs. If too many are, the bound is refined bit by bit.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME topk_f32
#define T f32
#define THREADS 256
#define ITEMS 16
#endif

#include "sort/sort.cuh"

#define CAP (2 * THREADS)
// Unrolled comparisons: 64-bit ones take more of AMD's scalar registers.
const int COMPARE_UNROLL = sizeof(T) == 8 ? 2 : 8;

__device__ inline u32 votes(bool vote) { return count(__ballot_sync(0xffffffffu, vote)); }

// A key and its position in the chunk; all are distinct.
template <class K> struct Entry {
    u64 both;
    __device__ Entry() {}
    __device__ Entry(K key, u32 at) : both((u64)key << 32 | at) {}
    __device__ K key() const { return (K)(both >> 32); }
    __device__ u32 at() const { return (u32)both; }
    __device__ bool operator<(const Entry &other) const { return both < other.both; }
};
template <> struct Entry<u64> {
    u64 own_key;
    u32 own_at;
    __device__ Entry() {}
    __device__ Entry(u64 key, u32 at) : own_key(key), own_at(at) {}
    __device__ u64 key() const { return own_key; }
    __device__ u32 at() const { return own_at; }
    __device__ bool operator<(const Entry &other) const {
        return own_key < other.own_key || (own_key == other.own_key && own_at < other.own_at);
    }
};

// The smallest bound that k of `each` keys per lane are within, refined only as far as needed.
template <int EACH> __device__ inline Key bound_of(const Key *firsts, u32 each, u32 k) {
    if constexpr (EACH > 1) {
        if (each < EACH) return bound_of<EACH / 2>(firsts, each, k);
    }
    Key own[EACH], bound = LAST;
#pragma unroll
    for (int e = 0; e < EACH; ++e) own[e] = firsts[e * WAVE + threadIdx.x];
#pragma unroll 1
    for (int bit = KEY_BITS - 1; bit >= 0; --bit) {
        const Key less = bound ^ (Key)1 << bit;
        u32 within = 0;
#pragma unroll
        for (int e = 0; e < EACH; ++e) within += votes(own[e] <= less);
        if (within >= k) bound = less;
        if (within == k) break;
    }
    return bound;
}

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

// Resident threads per NVIDIA multiprocessor: by itself the compiler uses registers for too few to hide latency.
const int RESIDENT_THREADS = sizeof(T) == 8 ? THREADS : ITEMS > 8 ? 1280 : 1536;

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT_THREADS / THREADS) KERNEL_NAME(NAME, _chunk)(SORT_PARAMETERS) {
    SORT_CALL;
    __shared__ Entry<Key> entries[CAP];
    __shared__ Key firsts[THREADS], bound_room;
    __shared__ u32 sums[WAVES], found;
    const u32 number = blockIdx.x / o.chunks, chunk = blockIdx.x - number * o.chunks;
    const u64 start = (u64)chunk * TILE;
    const u32 n = o.n - start < TILE ? (u32)(o.n - start) : TILE, k = o.keep < n ? o.keep : n;

    Key keys[ITEMS], own = LAST;
    call.load<THREADS>(o, number, start, n, threadIdx.x, dims, keys);
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) own = keys[i] < own ? keys[i] : own;
    // For small k few groups are enough: merge neighbors.
    u32 log = 0;
    while (log < 5 && (THREADS >> (log + 1)) >= WAVE && (THREADS >> (log + 1)) >= 2 * k) {
        const Key other = __shfl_xor_sync(0xffffffffu, own, 1 << log);
        own = other < own ? other : own;
        ++log;
    }
    if ((threadIdx.x & ((1 << log) - 1)) == 0) firsts[threadIdx.x >> log] = own;
    if (threadIdx.x == 0) found = 0;
    __syncthreads();
    if (threadIdx.x < WAVE) {
        const u32 groups = THREADS >> log;
        const Key bound = k <= groups ? bound_of<WAVES>(firsts, groups / WAVE, k) : LAST;
        if (threadIdx.x == 0) bound_room = bound;
    }
    __syncthreads();
    Key bound = bound_room;
    // Of keys equal to the bound, positions below `last` count; those beyond the chunk never do.
    u32 last = n;
    // At most twice: the second time the bound is exact.
    for (;;) {
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const u32 p = i * THREADS + threadIdx.x;
            if (keys[i] <= bound) {
                if (keys[i] == bound && p >= last) continue;
                const u32 slot = atomicAdd(&found, 1u);
                if (slot < CAP) entries[slot] = Entry<Key>(keys[i], p);
            }
        }
        __syncthreads();
        if (found <= CAP) break;
        // The k-th key, then how many of its equals belong.
        bound = LAST;
#pragma unroll 1
        for (int bit = KEY_BITS - 1; bit >= 0; --bit) {
            const Key less = bound ^ (Key)1 << bit;
            u32 within = 0;
#pragma unroll
            for (int i = 0; i < ITEMS; ++i) within += keys[i] <= less;
            if (sum_of_block(within, sums) >= k) bound = less;
        }
        u32 ahead = 0, equal = 0;
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            ahead += keys[i] < bound;
            equal |= (u32)(keys[i] == bound) << i;
        }
        const u32 rest = k - sum_of_block(ahead, sums);
        last = 2 * TILE - 1;
#pragma unroll 1
        for (u32 bit = TILE; bit > 0; bit /= 2) {
            const u32 less = last ^ bit;
            // How many of the thread's own elements precede it.
            const u32 own_places = less > threadIdx.x ? (less - threadIdx.x + THREADS - 1) / THREADS : 0;
            const u32 within = own_places < ITEMS ? equal & ((1u << own_places) - 1) : equal;
            if (sum_of_block(__popc(within), sums) >= rest) last = less;
        }
        if (threadIdx.x == 0) found = 0;
        __syncthreads();
    }
    const u32 all = found;
    for (u32 c = threadIdx.x; c < all; c += THREADS) {
        const Entry<Key> entry = entries[c];
        u32 before = 0;
#pragma unroll COMPARE_UNROLL
        for (u32 other = 0; other < all; ++other) before += entries[other] < entry;
        if (before >= k) continue;
        const Row row(number, dims);
        call.keep(o, row, number, chunk, before, entry.key(), call.at(o, number, start + entry.at()));
    }
}
