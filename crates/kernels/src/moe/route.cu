// Routing of a mixture of experts: each token's experts and their weights, from router logits of (tokens, experts).
//
// 32 lanes share a token. SCORE: 0, softmax over all experts; 1, sigmoid; 2, softmax over the chosen ones; 3, sparse mixer.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME moe_route
#define SCORE 0
#endif

#include "common/pdl.cuh"
#include "common/types.cuh"

struct Route {
    i32 tokens, experts, used;
    // Groups of experts, of which only the best `used_groups` are eligible; a group's score is its best expert's, or the sum of two.
    i32 groups, used_groups, sum_of_two;
    // Whether weights are divided by their sum.
    i32 normalize;
    f32 scale, epsilon;
    i32 padding;
};

#define LANES 32
#define LOWEST __uint_as_float(0xff800000u)

template <class V, class F> __device__ inline V across_lanes(V value, F f) {
#pragma unroll
    for (int apart = LANES / 2; apart > 0; apart /= 2) value = f(value, __shfl_xor_sync(0xffffffffu, value, apart));
    return value;
}
__device__ inline f32 lanes_max(f32 x) {
    return across_lanes(x, [](f32 a, f32 b) { return a > b ? a : b; });
}
__device__ inline f32 lanes_sum(f32 x) {
    return across_lanes(x, [](f32 a, f32 b) { return a + b; });
}

extern "C" __global__ void __launch_bounds__(128) NAME(const f32 *logits, const f32 *bias, u32 *ids, f32 *weights, Route r) {
    extern __shared__ f32 smem[];
    pdl_sync();
    const i32 lane = threadIdx.x, token = blockIdx.x * blockDim.y + threadIdx.y;
    const bool there = token < r.tokens;
    // Scores, and the scores by which experts are chosen; those of ineligible ones are infinite.
    f32 *scores = smem + threadIdx.y * 2 * r.experts, *choices = scores + r.experts;
    const f32 *row = logits + (i64)(there ? token : 0) * r.experts;
    f32 largest = LOWEST;
    for (i32 e = lane; e < r.experts; e += LANES) {
        scores[e] = row[e];
        if (row[e] > largest) largest = row[e];
    }
    if (SCORE == 0) {
        largest = lanes_max(largest);
        f32 sum = 0;
        for (i32 e = lane; e < r.experts; e += LANES) {
            scores[e] = expf(scores[e] - largest);
            sum += scores[e];
        }
        sum = lanes_sum(sum);
        for (i32 e = lane; e < r.experts; e += LANES) scores[e] /= sum;
    } else if (SCORE == 1) {
        for (i32 e = lane; e < r.experts; e += LANES) scores[e] = 1 / (1 + expf(-scores[e]));
    }
    for (i32 e = lane; e < r.experts; e += LANES) choices[e] = scores[e] + (bias ? bias[e] : 0);
    __syncthreads();
    if (r.groups > 1) {
        const i32 each = r.experts / r.groups;
        f32 best = LOWEST, second = LOWEST;
        for (i32 i = 0; lane < r.groups && i < each; ++i) {
            const f32 choice = choices[lane * each + i];
            if (choice > best) second = best, best = choice;
            else if (choice > second) second = choice;
        }
        const f32 own = r.sum_of_two && each > 1 ? best + second : best;
        i32 better = 0;
        for (i32 g = 0; g < r.groups; ++g) {
            const f32 other = __shfl_sync(0xffffffffu, own, g, LANES);
            better += other > own || (other == own && g < lane);
        }
        __syncthreads();
        for (i32 i = 0; lane < r.groups && better >= r.used_groups && i < each; ++i) choices[lane * each + i] = LOWEST;
        __syncthreads();
    }
    // Lane j gets the j-th expert.
    u32 id = 0;
    f32 weight = LOWEST;
    for (i32 j = 0; j < r.used; ++j) {
        f32 most = LOWEST;
        i32 at = r.experts - 1;
        for (i32 e = lane; e < r.experts; e += LANES) {
            if (choices[e] > most) most = choices[e], at = e;
        }
#pragma unroll
        for (int apart = LANES / 2; apart > 0; apart /= 2) {
            const f32 other = __shfl_xor_sync(0xffffffffu, most, apart);
            const i32 other_at = __shfl_xor_sync(0xffffffffu, at, apart);
            if (other > most || (other == most && other_at < at)) most = other, at = other_at;
        }
        f32 own = scores[at];
        if (SCORE == 3) {
            // The softmax over the remaining experts that come near.
            f32 sum = 0;
            for (i32 e = lane; e < r.experts; e += LANES) {
                const f32 size = fabsf(scores[e]), score = choices[e];
                if (score > LOWEST && (most - score) / (size > most ? size : most) <= 2 * r.epsilon) sum += expf(score - most);
            }
            own = 1 / lanes_sum(sum);
        }
        if (lane == j) id = (u32)at, weight = own;
        __syncthreads();
        if (lane == 0) choices[at] = LOWEST;
        __syncthreads();
    }
    if (SCORE == 2) {
        const f32 first = __shfl_sync(0xffffffffu, weight, 0, LANES);
        weight = lane < r.used ? expf(weight - first) : 0;
    } else if (lane >= r.used) {
        weight = 0;
    }
    const f32 sum = lanes_sum(weight);
    if (SCORE == 2 || r.normalize) weight /= sum + 1e-20f;
    if (there && lane < r.used) {
        ids[(i64)token * r.used + lane] = id;
        weights[(i64)token * r.used + lane] = weight * r.scale;
    }
}
