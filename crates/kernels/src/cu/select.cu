// The first of chunks of rows, in the order they stood in: for more than topk.cu finds.
//
// A chunk lies in registers. The key that just so many are within is found bit by bit; those within it move together.

#if defined(__AMDGCN__) && WAVE == 64
typedef u64 Lanes;
__device__ inline u32 count(Lanes lanes) { return __popcll(lanes); }
#else
typedef u32 Lanes;
__device__ inline u32 count(Lanes lanes) { return __popc(lanes); }
#endif

__device__ inline u32 sum_of_wave(u32 x) {
#if !defined(__AMDGCN__) && __CUDA_ARCH__ >= 800
    asm("redux.sync.add.u32 %0, %0, 0xffffffff;" : "+r"(x));
#else
#pragma unroll
    for (int by = WAVE / 2; by > 0; by /= 2) x += __shfl_xor_sync(0xffffffffu, x, by);
#endif
    return x;
}

// Sums of a block, one after the other: of every second the room is the same.
struct Sums {
    u32 (&room)[2][WAVE];
    u32 turn;
    __device__ inline u32 of(u32 x) {
        x = sum_of_wave(x);
        if (threadIdx.x % WAVE == 0) room[turn][threadIdx.x / WAVE] = x;
        __syncthreads();
        x = threadIdx.x % WAVE < WAVES ? room[turn][threadIdx.x % WAVE] : 0;
        turn ^= 1;
        return sum_of_wave(x);
    }
};

extern "C" __global__ void __launch_bounds__(THREADS) SYMBOL(NAME, _select)(CALL) {
    MAKE_CALL;
    __shared__ u32 room[2][WAVE], firsts[ITEMS * WAVES];
    const u32 number = blockIdx.x / o.chunks, chunk = blockIdx.x - number * o.chunks;
    const u32 lane = threadIdx.x % WAVE, wave = threadIdx.x / WAVE;
    const u64 start = (u64)chunk * TILE;
    const u32 n = o.n - start < TILE ? (u32)(o.n - start) : TILE, k = o.keep < n ? o.keep : n;
    Sums sums = {room, 0};

    Key keys[ITEMS], bound = LAST;
    call.load<THREADS>(o, number, start, n, threadIdx.x, dims, keys);
    // What is beyond the chunk is never within: its places are not before n.
    u32 within = n, last = n;
#pragma unroll 1
    for (int bit = KEY_BITS - 1; bit >= 0 && within > k; --bit) {
        const Key less = bound ^ (Key)1 << bit;
        u32 own = 0;
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) own += keys[i] <= less;
        own = sums.of(own);
        if (own >= k) {
            bound = less;
            within = own;
        }
    }
    if (within > k) {
        // Several are equal to the bound: the first of them belong.
        u32 ahead = 0;
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) ahead += keys[i] < bound;
        const u32 rest = k - sums.of(ahead);
        last = 2 * TILE - 1;
#pragma unroll 1
        for (u32 bit = TILE; bit > 0; bit /= 2) {
            const u32 less = last ^ bit;
            u32 own = 0;
#pragma unroll
            for (int i = 0; i < ITEMS; ++i) own += keys[i] == bound && i * THREADS + threadIdx.x < less;
            if (sums.of(own) >= rest) last = less;
        }
    }
    u32 chosen = 0;
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        const bool in = keys[i] < bound || (keys[i] == bound && i * THREADS + threadIdx.x < last);
        chosen |= (u32)in << i;
        const Lanes lanes = __ballot_sync(0xffffffffu, in);
        if (lane == 0) firsts[i * WAVES + wave] = count(lanes);
    }
    __syncthreads();
    // How many stand before those of a wave: sums over all waves of the items before, and over the waves before.
    u32 before = 0, own = 0;
    if (threadIdx.x < ITEMS * WAVES) before = own = firsts[threadIdx.x];
#pragma unroll
    for (int by = 1; by < WAVE; by *= 2) {
        const u32 other = __shfl_up_sync(0xffffffffu, before, by);
        if (lane >= by) before += other;
    }
    if (lane == WAVE - 1) room[sums.turn][wave] = before;
    __syncthreads();
    for (u32 w = 0; w < wave && w < (ITEMS * WAVES + WAVE - 1) / WAVE; ++w) before += room[sums.turn][w];
    if (threadIdx.x < ITEMS * WAVES) firsts[threadIdx.x] = before - own;
    __syncthreads();
    const Row row(number, dims);
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        const bool in = chosen >> i & 1;
        const Lanes lanes = __ballot_sync(0xffffffffu, in);
        const u32 p = firsts[i * WAVES + wave] + count(lanes & (((Lanes)1 << lane) - 1));
        if (in) call.keep(o, row, number, chunk, p, keys[i], call.at(o, number, start + i * THREADS + threadIdx.x));
    }
}
