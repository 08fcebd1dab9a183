// Row-wise work of neural networks: a block per row.
#include "elementwise.cuh"
#include <math.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

struct Sum {
    static __device__ float start() { return 0.0f; }
    static __device__ float join(float a, float b) { return a + b; }
};
struct Max {
    static __device__ float start() { return -INFINITY; }
    static __device__ float join(float a, float b) { return fmaxf(a, b); }
};
template <class Op> static __device__ float over_block(float x) {
    __shared__ float part[32];
    for (int step = warpSize / 2; step; step /= 2) x = Op::join(x, __shfl_xor_sync(0xffffffffu, x, step));
    __syncthreads();
    if (threadIdx.x % warpSize == 0) part[threadIdx.x / warpSize] = x;
    __syncthreads();
    float all = Op::start();
    for (int i = 0; i < blockDim.x / warpSize; i++) all = Op::join(all, part[i]);
    return all;
}
static __device__ float load(float x) { return x; }
static __device__ float load(__half x) { return __half2float(x); }
static __device__ float load(__nv_bfloat16 x) { return __bfloat162float(x); }
template <class T> static __device__ T store(float x);
template <> __device__ float store<float>(float x) { return x; }
template <> __device__ __half store<__half>(float x) { return __float2half(x); }
template <> __device__ __nv_bfloat16 store<__nv_bfloat16>(float x) { return __float2bfloat16(x); }

template <class T, bool logarithm> static __device__ void softmax(const T *in, T *out, int columns) {
    in += (size_t)blockIdx.x * columns;
    out += (size_t)blockIdx.x * columns;
    float most = -INFINITY, sum = 0.0f;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) most = fmaxf(most, load(in[i]));
    most = over_block<Max>(most);
    for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += expf(load(in[i]) - most);
    sum = over_block<Sum>(sum);
    for (int i = threadIdx.x; i < columns; i += blockDim.x)
        out[i] = store<T>(logarithm ? load(in[i]) - most - logf(sum) : expf(load(in[i]) - most) / sum);
}
extern "C" __global__ void softmax_f32(const float *in, float *out, int columns) { softmax<float, false>(in, out, columns); }
extern "C" __global__ void softmax_f16(const __half *in, __half *out, int columns) { softmax<__half, false>(in, out, columns); }
extern "C" __global__ void softmax_bf16(const __nv_bfloat16 *in, __nv_bfloat16 *out, int columns) {
    softmax<__nv_bfloat16, false>(in, out, columns);
}
extern "C" __global__ void log_softmax_f32(const float *in, float *out, int columns) { softmax<float, true>(in, out, columns); }

template <class T> static __device__ void layernorm(const T *in, const T *gain, const T *bias, T *out, int columns, float eps) {
    in += (size_t)blockIdx.x * columns;
    out += (size_t)blockIdx.x * columns;
    float sum = 0.0f, squares = 0.0f;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += load(in[i]);
    float mean = over_block<Sum>(sum) / columns;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) squares += (load(in[i]) - mean) * (load(in[i]) - mean);
    float scale = rsqrtf(over_block<Sum>(squares) / columns + eps);
    for (int i = threadIdx.x; i < columns; i += blockDim.x)
        out[i] = store<T>((load(in[i]) - mean) * scale * load(gain[i]) + load(bias[i]));
}
extern "C" __global__ void layernorm_f32(const float *in, const float *gain, const float *bias, float *out, int columns, float eps) {
    layernorm(in, gain, bias, out, columns, eps);
}
extern "C" __global__ void layernorm_f16(const __half *in, const __half *gain, const __half *bias, __half *out, int columns, float eps) {
    layernorm(in, gain, bias, out, columns, eps);
}

template <class T> static __device__ void rmsnorm(const T *in, const T *gain, T *out, int columns, float eps) {
    in += (size_t)blockIdx.x * columns;
    out += (size_t)blockIdx.x * columns;
    float squares = 0.0f;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) squares += load(in[i]) * load(in[i]);
    float scale = rsqrtf(over_block<Sum>(squares) / columns + eps);
    for (int i = threadIdx.x; i < columns; i += blockDim.x) out[i] = store<T>(load(in[i]) * scale * load(gain[i]));
}
extern "C" __global__ void rmsnorm_f32(const float *in, const float *gain, float *out, int columns, float eps) {
    rmsnorm(in, gain, out, columns, eps);
}
extern "C" __global__ void rmsnorm_bf16(const __nv_bfloat16 *in, const __nv_bfloat16 *gain, __nv_bfloat16 *out, int columns, float eps) {
    rmsnorm(in, gain, out, columns, eps);
}

// A block per group of channels; in and out are channels x pixels.
extern "C" __global__ void groupnorm_f32(const float *in, const float *gain, const float *bias, float *out, int channels, int pixels,
                                         float eps) {
    int size = channels * pixels;
    in += (size_t)blockIdx.x * size;
    out += (size_t)blockIdx.x * size;
    float sum = 0.0f, squares = 0.0f;
    for (int i = threadIdx.x; i < size; i += blockDim.x) {
        sum += in[i];
        squares += in[i] * in[i];
    }
    float mean = over_block<Sum>(sum) / size;
    float scale = rsqrtf(over_block<Sum>(squares) / size - mean * mean + eps);
    for (int i = threadIdx.x; i < size; i += blockDim.x) {
        int channel = blockIdx.x * channels + i / pixels;
        out[i] = (in[i] - mean) * scale * gain[channel] + bias[channel];
    }
}

// Rotary position embedding. Pairs lie side by side, or half a head apart. A block per position, a thread per pair.
extern "C" __global__ void rope_pairs_f32(const float *in, float *out, int size, float base) {
    int p = threadIdx.x, row = blockIdx.x * size;
    float angle = (float)blockIdx.x * powf(base, -2.0f * p / size), s, c;
    sincosf(angle, &s, &c);
    float x = in[row + 2 * p], y = in[row + 2 * p + 1];
    out[row + 2 * p] = x * c - y * s;
    out[row + 2 * p + 1] = x * s + y * c;
}
extern "C" __global__ void rope_halves_f16(const __half *in, __half *out, int size, float base) {
    int p = threadIdx.x, row = blockIdx.x * size, half = size / 2;
    float angle = (float)blockIdx.x * powf(base, -2.0f * p / size), s, c;
    sincosf(angle, &s, &c);
    float x = __half2float(in[row + p]), y = __half2float(in[row + p + half]);
    out[row + p] = __float2half(x * c - y * s);
    out[row + p + half] = __float2half(x * s + y * c);
}
// Loss and its row's cross entropy.
extern "C" __global__ void cross_entropy_f32(const float *logits, const int *labels, float *loss, int columns) {
    const float *row = logits + (size_t)blockIdx.x * columns;
    float most = -INFINITY, sum = 0.0f;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) most = fmaxf(most, row[i]);
    most = over_block<Max>(most);
    for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += expf(row[i] - most);
    sum = over_block<Sum>(sum);
    if (threadIdx.x == 0) loss[blockIdx.x] = logf(sum) + most - row[labels[blockIdx.x]];
}
// Rows picked by index.
extern "C" __global__ void embedding_f32(const float *table, const int *ids, float *out, int columns) {
    for (int i = threadIdx.x; i < columns; i += blockDim.x)
        out[(size_t)blockIdx.x * columns + i] = table[(size_t)ids[blockIdx.x] * columns + i];
}
