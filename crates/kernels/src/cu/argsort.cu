// Chunks of rows in order, by a radix sort: BITS of the key at a time, the lowest first.
//
// A wave holds WAVE * ITEMS neighbours; lanes with the same digit find each other by votes, so nothing depends on who comes first.

extern __shared__ u64 room[];

#if defined(__AMDGCN__) && WAVE == 64
typedef u64 Lanes;
__device__ inline u32 count(Lanes lanes) { return __popcll(lanes); }
#else
typedef u32 Lanes;
__device__ inline u32 count(Lanes lanes) { return __popc(lanes); }
#endif

const int RADIX = 1 << BITS;
// Digits that a thread sums up.
const int DIGITS = (RADIX + THREADS - 1) / THREADS;

__device__ inline Lanes alike(u32 digit) {
    Lanes lanes = ~(Lanes)0;
#pragma unroll
    for (int bit = 0; bit < BITS; ++bit) {
        const bool set = digit >> bit & 1;
        const Lanes votes = __ballot_sync(0xffffffffu, set);
        lanes &= set ? votes : ~votes;
    }
    return lanes;
}

extern "C" __global__ void __launch_bounds__(THREADS) SYMBOL(NAME, _tile)(CALL) {
    MAKE_CALL;
    Key *const keys_room = (Key *)room;
    u32 *const counts = (u32 *)(keys_room + TILE), *const sums = counts + WAVES * RADIX;
    u16 *const at_room = (u16 *)(sums + WAVES);
    const u32 number = blockIdx.x / o.chunks, chunk = blockIdx.x - number * o.chunks;
    const u32 lane = threadIdx.x % WAVE, wave = threadIdx.x / WAVE, first = wave * (WAVE * ITEMS) + lane;
    const u64 start = (u64)chunk * TILE;
    const u32 n = o.n - start < TILE ? (u32)(o.n - start) : TILE;
    u32 *const own = counts + wave * RADIX;

    Key keys[ITEMS];
    // Where it stood in the lower half, its rank within its wave in the upper: registers are what a large tile lacks.
    u32 at[ITEMS];
    {
        const Row row(number, dims);
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            at[i] = first + i * WAVE;
            keys[i] = at[i] < n ? call.key(o, row, number, start + at[i]) : ~(Key)0;
        }
    }
#pragma unroll 1
    for (int shift = 0; shift < KEY_BITS; shift += BITS) {
        for (int d = lane; d < RADIX; d += WAVE) own[d] = 0;
        __syncwarp();
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const u32 digit = (u32)(keys[i] >> shift) & (RADIX - 1);
            const Lanes lanes = alike(digit);
            const u32 before = count(lanes & (((Lanes)1 << lane) - 1)), old = own[digit];
            __syncwarp();
            if (before == 0) own[digit] = old + count(lanes);
            __syncwarp();
            at[i] |= (old + before) << 16;
        }
        __syncthreads();
        // Every digit's first place in every wave: sums over the waves, then over the digits.
        u32 total[DIGITS], sum = 0;
#pragma unroll
        for (int k = 0; k < DIGITS; ++k) {
            const u32 d = threadIdx.x * DIGITS + k;
            total[k] = 0;
            if (d < RADIX) {
#pragma unroll
                for (int w = 0; w < WAVES; ++w) total[k] += counts[w * RADIX + d];
            }
            sum += total[k];
        }
        u32 before = sum;
#pragma unroll
        for (int by = 1; by < WAVE; by *= 2) {
            const u32 other = __shfl_up_sync(0xffffffffu, before, by);
            if (lane >= by) before += other;
        }
        if (lane == WAVE - 1) sums[wave] = before;
        before -= sum;
        __syncthreads();
#pragma unroll
        for (int w = 0; w < WAVES; ++w) before += w < wave ? sums[w] : 0;
#pragma unroll
        for (int k = 0; k < DIGITS; ++k) {
            const u32 d = threadIdx.x * DIGITS + k;
            if (d < RADIX) {
                u32 place = before;
#pragma unroll
                for (int w = 0; w < WAVES; ++w) {
                    const u32 own_count = counts[w * RADIX + d];
                    counts[w * RADIX + d] = place;
                    place += own_count;
                }
            }
            before += total[k];
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            at[i] += own[(u32)(keys[i] >> shift) & (RADIX - 1)] << 16;
        }
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const u32 place = at[i] >> 16;
            keys_room[place] = keys[i];
            at_room[place] = (u16)at[i];
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            keys[i] = keys_room[first + i * WAVE];
            at[i] = at_room[first + i * WAVE];
        }
    }
    const Row row(number, dims);
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        const u32 p = first + i * WAVE;
        if (p >= n || p >= o.keep) continue;
        call.keep(o, row, number, chunk, p, keys[i], call.at(o, number, start + at[i]));
    }
}

// Two neighbouring runs of each row become one: an element's place is its own in its run and what comes before it in the other.
// `keep` is the length of a row's result.
extern "C" __global__ void __launch_bounds__(256) SYMBOL(NAME, _merge)(CALL, u64 run, u64 all) {
    MAKE_CALL;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < all; i += (u64)gridDim.x * 256) {
        const u64 number = i / o.n, p = i - number * o.n, mine = p / run, base = number * o.n;
        const bool second = mine & 1;
        const Key key = from_keys[i];
        u64 low = (mine ^ 1) * run, high = low + run;
        if (low > o.n) low = o.n;
        if (high > o.n) high = o.n;
        const u64 other = low;
        while (low < high) {
            const u64 middle = (low + high) / 2;
            const Key there = from_keys[base + middle];
            if (there < key || (second && there == key)) low = middle + 1;
            else high = middle;
        }
        const u64 to = (mine & ~1ull) * run + (p - mine * run) + (low - other);
        const u32 at = from_at[i];
        if (to_keys) {
            to_keys[base + to] = key;
            to_at[base + to] = at;
        } else if (to < o.keep) {
            const Row row((u32)number, dims);
            call.write(o, row, to, at);
        }
    }
}
