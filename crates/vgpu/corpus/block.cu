// Block-level operations through shared memory.
#include "elementwise.cuh"

// Any block size up to 1024.
extern "C" __global__ void block_sum_f32(const float *in, float *out, int n) {
    __shared__ float part[1024];
    float sum = 0;
    for (int i = threadIdx.x + blockIdx.x * blockDim.x; i < n; i += blockDim.x * gridDim.x) sum += in[i];
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int size = blockDim.x; size > 1;) {
        int half = (size + 1) / 2;
        if (threadIdx.x + half < size) part[threadIdx.x] += part[threadIdx.x + half];
        size = half;
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}
extern "C" __global__ void block_max_i64(const long long *in, long long *out, int n) {
    __shared__ long long part[256];
    long long best = -9223372036854775807ll - 1;
    for (int i = threadIdx.x; i < n; i += blockDim.x) best = max(best, in[i]);
    part[threadIdx.x] = best;
    __syncthreads();
    for (int half = blockDim.x / 2; half; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] = max(part[threadIdx.x], part[threadIdx.x + half]);
        __syncthreads();
    }
    if (threadIdx.x == 0) *out = part[0];
}
// Waves first, then one wave over their sums.
extern "C" __global__ void block_sum_waves_f64(const double *in, double *out, int n) {
    __shared__ double part[64];
    int lane = threadIdx.x % warpSize, wave = threadIdx.x / warpSize, waves = blockDim.x / warpSize;
    double sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += in[i];
    for (int step = warpSize / 2; step; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (lane == 0) part[wave] = sum;
    __syncthreads();
    if (wave == 0) {
        sum = lane < waves ? part[lane] : 0.0;
        for (int step = warpSize / 2; step; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
        if (lane == 0) *out = sum;
    }
}
extern "C" __global__ void block_argmax_f32(const float *in, int *index, int n) {
    __shared__ float best[256];
    __shared__ int who[256];
    int t = threadIdx.x;
    best[t] = -3.0e38f;
    who[t] = -1;
    for (int i = t; i < n; i += blockDim.x)
        if (in[i] > best[t]) best[t] = in[i], who[t] = i;
    __syncthreads();
    for (int half = blockDim.x / 2; half; half /= 2) {
        if (t < half && (best[t + half] > best[t] || (best[t + half] == best[t] && who[t + half] < who[t]))) {
            best[t] = best[t + half];
            who[t] = who[t + half];
        }
        __syncthreads();
    }
    if (t == 0) *index = who[0];
}
// Hillis and Steele, in two halves of a buffer.
extern "C" __global__ void block_scan_f32(const float *in, float *out) {
    __shared__ float buffer[2][256];
    int t = threadIdx.x, now = 0;
    buffer[0][t] = in[INDEX];
    __syncthreads();
    for (int step = 1; step < blockDim.x; step *= 2) {
        buffer[1 - now][t] = buffer[now][t] + (t >= step ? buffer[now][t - step] : 0.0f);
        now = 1 - now;
        __syncthreads();
    }
    out[INDEX] = buffer[now][t];
}
// Blelloch's exclusive scan: up-sweep and down-sweep.
extern "C" __global__ void block_scan_u32(const unsigned int *in, unsigned int *out) {
    __shared__ unsigned int tree[512];
    int t = threadIdx.x, size = 2 * blockDim.x, base = blockIdx.x * size;
    tree[2 * t] = in[base + 2 * t];
    tree[2 * t + 1] = in[base + 2 * t + 1];
    int gap = 1;
    for (int d = size / 2; d > 0; d /= 2) {
        __syncthreads();
        if (t < d) tree[gap * (2 * t + 2) - 1] += tree[gap * (2 * t + 1) - 1];
        gap *= 2;
    }
    if (t == 0) tree[size - 1] = 0;
    for (int d = 1; d < size; d *= 2) {
        gap /= 2;
        __syncthreads();
        if (t < d) {
            int left = gap * (2 * t + 1) - 1, right = gap * (2 * t + 2) - 1;
            unsigned int old = tree[left];
            tree[left] = tree[right];
            tree[right] += old;
        }
    }
    __syncthreads();
    out[base + 2 * t] = tree[2 * t];
    out[base + 2 * t + 1] = tree[2 * t + 1];
}
extern "C" __global__ void block_votes(const int *in, int *count, int *any, int *all) {
    int i = INDEX;
    count[i] = __syncthreads_count(in[i] > 0);
    any[i] = __syncthreads_or(in[i] > 90);
    all[i] = __syncthreads_and(in[i] > -90);
}
// A stencil with a halo in shared memory.
extern "C" __global__ void stencil_halo(const float *in, float *out, int n) {
    __shared__ float tile[128 + 4];
    int i = INDEX, t = threadIdx.x;
    tile[t + 2] = i < n ? in[i] : 0.0f;
    if (t < 2) tile[t] = i >= 2 ? in[i - 2] : 0.0f;
    if (t >= 126) tile[t + 4] = i + 2 < n ? in[i + 2] : 0.0f;
    __syncthreads();
    if (i < n) out[i] = tile[t] + tile[t + 1] + tile[t + 2] + tile[t + 3] + tile[t + 4];
}
// Bytes and halfwords in shared memory.
extern "C" __global__ void shared_bytes(const unsigned char *in, unsigned char *out, short *sums) {
    __shared__ unsigned char bytes[192];
    __shared__ short words[192];
    int t = threadIdx.x, i = INDEX;
    bytes[191 - t] = in[i];
    words[t] = (short)(in[i] - 100);
    __syncthreads();
    out[i] = bytes[t];
    sums[i] = (short)(words[t] + words[191 - t]);
}
// 128-bit accesses of shared memory.
extern "C" __global__ void shared_vectors(const float4 *in, float4 *out) {
    __shared__ float4 tile[64];
    int t = threadIdx.x;
    tile[t ^ 21] = in[INDEX];
    __syncthreads();
    float4 v = tile[t];
    out[INDEX] = make_float4(v.w, v.z, v.y, v.x);
}
