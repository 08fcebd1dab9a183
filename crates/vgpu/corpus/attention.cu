// Attention of one head: out = softmax(q k^T / sqrt(size)) v, causal if asked.
#include <math.h>
#include <cuda_fp16.h>

// A block per query; scores in dynamic shared memory.
extern "C" __global__ void attention_naive_f32(const float *q, const float *k, const float *v, float *out, int length, int size,
                                               int causal) {
    extern __shared__ float scores[];
    __shared__ float most, total;
    int query = blockIdx.x, end = causal ? query + 1 : length;
    float scale = 1.0f / sqrtf((float)size);
    for (int j = threadIdx.x; j < end; j += blockDim.x) {
        float dot = 0.0f;
        for (int d = 0; d < size; d++) dot += q[query * size + d] * k[j * size + d];
        scores[j] = dot * scale;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        most = -INFINITY;
        for (int j = 0; j < end; j++) most = fmaxf(most, scores[j]);
        total = 0.0f;
        for (int j = 0; j < end; j++) {
            scores[j] = expf(scores[j] - most);
            total += scores[j];
        }
    }
    __syncthreads();
    for (int d = threadIdx.x; d < size; d += blockDim.x) {
        float sum = 0.0f;
        for (int j = 0; j < end; j++) sum += scores[j] * v[j * size + d];
        out[query * size + d] = sum / total;
    }
}

#define HEAD 32
#define KEYS 16

static __device__ float wide(float x) { return x; }
static __device__ float wide(__half x) { return __half2float(x); }

// A thread per query, keys and values in tiles, online softmax.
template <class T> static __device__ void flash(const T *q, const T *k, const T *v, float *out, int length, int causal) {
    __shared__ float keys[KEYS][HEAD];
    __shared__ float values[KEYS][HEAD];
    int query = blockIdx.x * blockDim.x + threadIdx.x;
    float mine[HEAD], sum[HEAD] = {}, most = -INFINITY, total = 0.0f;
    for (int d = 0; d < HEAD; d++) mine[d] = query < length ? wide(q[query * HEAD + d]) : 0.0f;
    for (int base = 0; base < length; base += KEYS) {
        for (int e = threadIdx.x; e < KEYS * HEAD; e += blockDim.x) {
            int j = base + e / HEAD;
            keys[e / HEAD][e % HEAD] = j < length ? wide(k[j * HEAD + e % HEAD]) : 0.0f;
            values[e / HEAD][e % HEAD] = j < length ? wide(v[j * HEAD + e % HEAD]) : 0.0f;
        }
        __syncthreads();
        for (int j = 0; j < KEYS; j++) {
            if (base + j >= length || (causal && base + j > query)) continue;
            float dot = 0.0f;
            for (int d = 0; d < HEAD; d++) dot += mine[d] * keys[j][d];
            dot *= rsqrtf((float)HEAD);
            float next = fmaxf(most, dot), shrink = expf(most - next), weight = expf(dot - next);
            for (int d = 0; d < HEAD; d++) sum[d] = sum[d] * shrink + weight * values[j][d];
            total = total * shrink + weight;
            most = next;
        }
        __syncthreads();
    }
    if (query < length)
        for (int d = 0; d < HEAD; d++) out[query * HEAD + d] = sum[d] / total;
}
extern "C" __global__ void attention_flash_f32(const float *q, const float *k, const float *v, float *out, int length, int causal) {
    flash(q, k, v, out, length, causal);
}
extern "C" __global__ void attention_flash_f16(const __half *q, const __half *k, const __half *v, float *out, int length, int causal) {
    flash(q, k, v, out, length, causal);
}
