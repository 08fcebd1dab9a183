// Synchronization between blocks and waves, and clocks.

// Block b waits for block b - 1 and adds its own value. Needs fair scheduling of blocks.
extern "C" __global__ void chain(const int *in, volatile int *flags, volatile int *sums, int *out) {
    int block = blockIdx.x, t = threadIdx.x;
    __shared__ int before;
    if (t == 0) {
        before = 0;
        if (block > 0) {
            while (flags[block - 1] == 0) {}
            __threadfence();
            before = sums[block - 1];
        }
    }
    __syncthreads();
    if (t == 0) {
        sums[block] = before + in[block];
        __threadfence();
        flags[block] = 1;
        out[block] = before + in[block];
    }
}
// Two blocks alternate; neither may starve.
extern "C" __global__ void ping_pong(volatile int *ball, int *out, int rounds) {
    if (threadIdx.x != 0) return;
    int mine = blockIdx.x, caught = 0;
    for (int round = 0; round < rounds; round++) {
        while (*ball % 2 != mine) {}
        caught += *ball;
        __threadfence();
        *ball = *ball + 1;
        __threadfence();
    }
    out[mine] = caught;
}
// The last block to finish sums the results of all.
extern "C" __global__ void last_block_sum(const int *in, int *parts, unsigned int *arrived, int *out, int n) {
    __shared__ int part[128];
    __shared__ bool last;
    int t = threadIdx.x, sum = 0;
    for (int i = blockIdx.x * blockDim.x + t; i < n; i += blockDim.x * gridDim.x) sum += in[i];
    part[t] = sum;
    __syncthreads();
    for (int half = blockDim.x / 2; half; half /= 2) {
        if (t < half) part[t] += part[t + half];
        __syncthreads();
    }
    if (t == 0) {
        parts[blockIdx.x] = part[0];
        __threadfence();
        last = atomicInc(arrived, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && t == 0) {
        __threadfence();
        int total = 0;
        for (int b = 0; b < gridDim.x; b++) total += ((volatile int *)parts)[b];
        *out = total;
    }
}
// A lock around three plain statements; one thread of each block takes it.
extern "C" __global__ void spin_lock(int *lock, volatile int *account, int rounds) {
    if (threadIdx.x != 0) return;
    for (int round = 0; round < rounds; round++) {
        while (atomicCAS(lock, 0, 1) != 0) {}
        __threadfence();
        account[0] = account[0] + 1;
        account[1] = account[1] + blockIdx.x;
        __threadfence();
        atomicExch(lock, 0);
    }
}
// Lanes of one wave in lockstep, with __syncwarp only.
extern "C" __global__ void wave_synchronous(const int *in, int *out) {
    __shared__ volatile int part[1024];
    int t = threadIdx.x, lane = t % warpSize;
    part[t] = in[blockIdx.x * blockDim.x + t];
    __syncwarp();
    for (int step = warpSize / 2; step; step /= 2) {
        int other = lane < step ? part[t + step] : 0;
        __syncwarp();
        if (lane < step) part[t] = part[t] + other;
        __syncwarp();
    }
    if (lane == 0) out[(blockIdx.x * blockDim.x + t) / warpSize] = part[t];
}
// Producer and consumer waves, through a ring buffer in shared memory.
extern "C" __global__ void ring(const int *in, int *out, int n) {
    __shared__ volatile int slots[8];
    __shared__ volatile int made, taken;
    int wave = threadIdx.x / warpSize;
    if (threadIdx.x == 0) made = 0, taken = 0;
    __syncthreads();
    if (threadIdx.x % warpSize == 0) {
        for (int i = 0; i < n; i++) {
            if (wave == 0) {
                while (made - taken >= 8) {}
                slots[i % 8] = in[i] * 2;
                __threadfence_block();
                made = i + 1;
            } else if (wave == 1) {
                while (made <= i) {}
                __threadfence_block();
                out[i] = slots[i % 8] + 1;
                __threadfence_block();
                taken = i + 1;
            }
        }
    }
}
// Waves of one block reach barriers after different numbers of steps.
extern "C" __global__ void uneven_barriers(int *out, int rounds) {
    __shared__ int board[256];
    int t = threadIdx.x;
    board[t] = t;
    __syncthreads();
    for (int round = 0; round < rounds; round++) {
        int x = board[(t + 64) % 256];
        for (int spin = 0; spin < (t / 64) * 3; spin++) x = x * 5 + 1;
        __syncthreads();
        board[t] = x & 0xffff;
        __syncthreads();
    }
    out[t] = board[t];
}
extern "C" __global__ void clocks(long long *out, int work) {
    long long start = clock64();
    volatile int x = 0;
    for (int i = 0; i < work; i++) x = x + i;
    long long end = clock64();
    out[3 * threadIdx.x] = start, out[3 * threadIdx.x + 1] = end, out[3 * threadIdx.x + 2] = x;
}
