// Within a wave: shuffles, votes, matches, reductions, scans. Whole waves unless said otherwise.
#include "elementwise.cuh"
#include <cuda_fp16.h>

#define ALL 0xffffffffu
#define LANE (threadIdx.x % warpSize)

#define SHUFFLE(name, T)                                                                                                           \
    extern "C" __global__ void shuffle_##name(const T *in, const int *from, T *any, T *up, T *down, T *crossed) {                  \
        int i = INDEX;                                                                                                             \
        T x = in[i];                                                                                                               \
        any[i] = __shfl_sync(ALL, x, from[i]);                                                                                     \
        up[i] = __shfl_up_sync(ALL, x, 3);                                                                                         \
        down[i] = __shfl_down_sync(ALL, x, 5);                                                                                     \
        crossed[i] = __shfl_xor_sync(ALL, x, 9);                                                                                   \
    }
SHUFFLE(i32, int)
SHUFFLE(u32, unsigned int)
SHUFFLE(i64, long long)
SHUFFLE(f32, float)
SHUFFLE(f64, double)
SHUFFLE(f16, __half)

// Segments of 16 and 8 lanes.
extern "C" __global__ void shuffle_segments(const int *in, int *any, int *up, int *down, int *crossed) {
    int i = INDEX, x = in[i];
    any[i] = __shfl_sync(ALL, x, 3, 16);
    up[i] = __shfl_up_sync(ALL, x, 2, 8);
    down[i] = __shfl_down_sync(ALL, x, 1, 16);
    crossed[i] = __shfl_xor_sync(ALL, x, 4, 8);
}

extern "C" __global__ void votes(const int *in, unsigned long long *ballot, int *any, int *all, int *uniform) {
    int i = INDEX, x = in[i];
    ballot[i] = __ballot_sync(ALL, x & 1);
    any[i] = __any_sync(ALL, x & 2);
    all[i] = __all_sync(ALL, x & 4);
    uniform[i] = __all_sync(ALL, x & 8) || !__any_sync(ALL, x & 8);
}
// The lanes that are in a branch, and those that are in the other.
extern "C" __global__ void active_lanes(const int *in, unsigned long long *mask) {
    int i = INDEX;
    if (in[i] % 3 == 0) {
        mask[i] = __activemask();
    } else {
        mask[i] = ~(unsigned long long)__activemask();
    }
}
extern "C" __global__ void match_any(const int *in, unsigned long long *mask) {
    int i = INDEX;
    mask[i] = __match_any_sync(ALL, in[i]);
}
extern "C" __global__ void match_all(const int *in, unsigned long long *mask, int *same) {
    int i = INDEX;
    mask[i] = __match_all_sync(ALL, in[i], &same[i]);
}
extern "C" __global__ void reduce_sync(const unsigned int *in, unsigned int *sum, unsigned int *least, unsigned int *both) {
    int i = INDEX;
    sum[i] = __reduce_add_sync(ALL, in[i]);
    least[i] = __reduce_min_sync(ALL, in[i]);
    both[i] = __reduce_xor_sync(ALL, in[i]);
}
#define WAVE_SUM(name, T)                                                                                                          \
    extern "C" __global__ void wave_sum_##name(const T *in, T *out) {                                                              \
        int i = INDEX;                                                                                                             \
        T x = in[i];                                                                                                               \
        for (int step = warpSize / 2; step; step /= 2) x += __shfl_xor_sync(ALL, x, step);                                         \
        out[i] = x;                                                                                                                \
    }
WAVE_SUM(i32, int)
WAVE_SUM(i64, long long)
WAVE_SUM(f32, float)
WAVE_SUM(f64, double)
extern "C" __global__ void wave_max_down_f32(const float *in, float *out) {
    float x = in[INDEX];
    for (int step = warpSize / 2; step; step /= 2) x = fmaxf(x, __shfl_down_sync(ALL, x, step));
    if (LANE == 0) out[INDEX / warpSize] = x;
}
extern "C" __global__ void wave_scan_i32(const int *in, int *inclusive, int *exclusive) {
    int i = INDEX, own = in[i], sum = own;
    for (int step = 1; step < warpSize; step *= 2) {
        int other = __shfl_up_sync(ALL, sum, step);
        if (LANE >= step) sum += other;
    }
    inclusive[i] = sum;
    exclusive[i] = sum - own;
}
// Each lane that passes gets its place among those that pass: ballot and count of lower lanes.
extern "C" __global__ void compact_wave(const int *in, int *place, int *count) {
    int i = INDEX;
    unsigned long long passing = __ballot_sync(ALL, in[i] > 0);
    unsigned long long lower = passing & ((1ull << LANE) - 1);
    place[i] = in[i] > 0 ? __popcll(lower) : -1;
    count[i] = __popcll(passing);
}
// Lanes leave one by one; the rest vote on.
extern "C" __global__ void shrinking_vote(const int *rounds, int *seen) {
    int i = INDEX, mine = rounds[i], total = 0;
    for (int round = 0; round < mine; round++) total += __popcll(__activemask());
    seen[i] = total;
}
// The lowest value and who holds it; ties go to the lower lane.
extern "C" __global__ void wave_argmin(const float *in, float *value, int *index) {
    int i = INDEX;
    float best = in[i];
    int who = LANE;
    for (int step = warpSize / 2; step; step /= 2) {
        float other = __shfl_xor_sync(ALL, best, step);
        int lane = __shfl_xor_sync(ALL, who, step);
        if (other < best || (other == best && lane < who)) best = other, who = lane;
    }
    value[i] = best;
    index[i] = who;
}
