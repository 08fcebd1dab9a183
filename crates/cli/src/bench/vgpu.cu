// What `warpwave bench vgpu` runs: one arithmetic kernel that is compared from machine to machine, and a handful of others.
#include <cuda_fp16.h>

#define TILE 16

// 64 x 64 results for each block of 16 x 16 threads, 4 x 4 in the registers of each thread.
extern "C" __global__ void matmul(const float *a, const float *b, float *c, int n) {
    __shared__ float left[TILE][4 * TILE + 1];
    __shared__ float right[TILE][4 * TILE];
    const int row = blockIdx.y * 4 * TILE, column = blockIdx.x * 4 * TILE;
    const int id = threadIdx.y * TILE + threadIdx.x;
    float sum[4][4] = {};
    for (int t = 0; t < n; t += TILE) {
        for (int i = 0; i < 4; i++) {
            const int e = id + TILE * TILE * i;
            left[e % TILE][e / TILE] = a[(row + e / TILE) * n + t + e % TILE];
            right[e / (4 * TILE)][e % (4 * TILE)] = b[(t + e / (4 * TILE)) * n + column + e % (4 * TILE)];
        }
        __syncthreads();
        for (int k = 0; k < TILE; k++) {
            float x[4], y[4];
            for (int i = 0; i < 4; i++) {
                x[i] = left[k][threadIdx.y * 4 + i];
                y[i] = right[k][threadIdx.x * 4 + i];
            }
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 4; j++) sum[i][j] = fmaf(x[i], y[j], sum[i][j]);
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) c[(row + threadIdx.y * 4 + i) * n + column + threadIdx.x * 4 + j] = sum[i][j];
}

extern "C" __global__ void saxpy(const float *x, const float *y, float *out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2.5f * x[i] + y[i];
}

extern "C" __global__ void gelu(const float *x, const float *y, float *out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 0.5f * x[i] * (1.0f + tanhf(0.79788456f * (x[i] + 0.044715f * x[i] * x[i] * x[i]))) + y[i];
}

extern "C" __global__ void softmax(const float *x, const float *y, float *out, int n) {
    __shared__ float part[256];
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const float value = i < n ? x[i] : -1e30f;
    part[threadIdx.x] = value;
    __syncthreads();
    for (int s = 128; s > 0; s /= 2) {
        if (threadIdx.x < s) part[threadIdx.x] = fmaxf(part[threadIdx.x], part[threadIdx.x + s]);
        __syncthreads();
    }
    const float most = part[0];
    __syncthreads();
    const float e = expf(value - most);
    part[threadIdx.x] = e;
    __syncthreads();
    for (int s = 128; s > 0; s /= 2) {
        if (threadIdx.x < s) part[threadIdx.x] += part[threadIdx.x + s];
        __syncthreads();
    }
    if (i < n) out[i] = e / part[0] + y[i] * 0.0f;
}

extern "C" __global__ void shuffles(const float *x, const float *y, float *out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = i < n ? x[i] * y[i] : 0.0f;
    for (int s = 16; s > 0; s /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, s, 32);
    if (i < n) out[i] = sum;
}

extern "C" __global__ void halves(const float *x, const float *y, float *out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        __half2 v = __floats2half2_rn(x[i], y[i]);
        for (int k = 0; k < 8; k++) v = __hfma2(v, v, __float2half2_rn(0.25f));
        out[i] = __low2float(v) + __high2float(v);
    }
}

extern "C" __global__ void doubles(const float *x, const float *y, float *out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        double v = x[i];
        for (int k = 0; k < 8; k++) v = v * y[i] + 0.125;
        out[i] = (float)v;
    }
}

extern "C" __global__ void hashes(const float *x, const float *y, float *out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        unsigned long long h = __float_as_uint(x[i]);
        for (int k = 0; k < 8; k++) h = (h ^ (h >> 29)) * 0xbf58476d1ce4e5b9ull + (unsigned)i;
        out[i] = (float)(h >> 40) + y[i] * 0.0f;
    }
}

extern "C" __global__ void transpose(const float *x, const float *y, float *out, int n) {
    __shared__ float tile[16][17];
    const int id = threadIdx.x, row = id / 16, column = id % 16;
    const int i = blockIdx.x * 256 + id;
    tile[row][column] = i < n ? x[i] : 0.0f;
    __syncthreads();
    if (i < n) out[i] = tile[column][row] + y[i] * 0.0f;
}
