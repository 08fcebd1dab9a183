// Products of weights with vectors: out[v][row] = sum over columns of W[row] * x[v], in f32.
//
// A block computes one element. Weights are read in runs of 16 consecutive ones, which share a scale in every format here. With experts,
// entry e of the launch takes the weights of experts[e] and writes the row tokens[e] of the result, scaled by scales[tokens[e]].
//
// Defined for each program: W, the format of the weights; X, that of the vectors; OUT, the type of the result.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define THREADS 64
#define RUN 16

struct Params {
    // Bytes from one row to the next, and from one expert to the next.
    u64 w_row, w_expert, x_row;
    // Elements from one row of the result to the next.
    u64 out_row;
    u32 columns, entries, x_rows;
    // Entries that share a row of x; 0 without experts.
    u32 top, experts;
    u32 unused;
};

__device__ inline float half_at(const u8 *at) { return __half2float(__ushort_as_half((u16)(at[0] | at[1] << 8))); }

// Formats: the values of run `r` of a row.
struct f32_rows {
    static __device__ void run(float (&v)[RUN], const u8 *row, u32 r) {
        for (int i = 0; i < RUN; ++i) v[i] = ((const float *)row)[RUN * r + i];
    }
};

struct f16_rows {
    static __device__ void run(float (&v)[RUN], const u8 *row, u32 r) {
        for (int i = 0; i < RUN; ++i) v[i] = half_at(row + 2 * (RUN * r + i));
    }
};

struct bf16_rows {
    static __device__ void run(float (&v)[RUN], const u8 *row, u32 r) {
        for (int i = 0; i < RUN; ++i) v[i] = __uint_as_float((u32)((const u16 *)row)[RUN * r + i] << 16);
    }
};

// Blocks of 32 signed bytes after a scale; q8_1 has a sum between them.
template <int HEAD> struct bytes_of_8 {
    static __device__ void run(float (&v)[RUN], const u8 *row, u32 r) {
        const u8 *block = row + (u64)(r / 2) * (HEAD + 32);
        const float d = half_at(block);
        for (int i = 0; i < RUN; ++i) v[i] = d * (float)(signed char)block[HEAD + r % 2 * RUN + i];
    }
};
typedef bytes_of_8<2> q8_0;
typedef bytes_of_8<4> q8_1;

// Blocks of 256 have 16 runs. Codes of 2 bits are in groups of 128, a run of 16 bytes holds four runs.
__device__ inline u32 two_bits(const u8 *codes, u32 r, int i) { return codes[r / 8 * 32 + r % 2 * RUN + i] >> r % 8 / 2 * 2 & 3; }

struct q2_k {
    static __device__ void run(float (&v)[RUN], const u8 *row, u32 r) {
        const u8 *block = row + (u64)(r / 16) * 84;
        r %= 16;
        const float d = half_at(block + 80) * (float)(block[r] & 15), m = half_at(block + 82) * (float)(block[r] >> 4);
        for (int i = 0; i < RUN; ++i) v[i] = d * (float)two_bits(block + 16, r, i) - m;
    }
};

struct q3_k {
    static __device__ void run(float (&v)[RUN], const u8 *row, u32 r) {
        const u8 *block = row + (u64)(r / 16) * 110, *scales = block + 96;
        r %= 16;
        const int low = r < 8 ? scales[r] & 15 : scales[r - 8] >> 4, high = scales[8 + r % 4] >> r / 4 * 2 & 3;
        const float d = half_at(block + 108) * (float)((low | high << 4) - 32);
        for (int i = 0; i < RUN; ++i) {
            // A third bit: unset, it subtracts 4.
            const int third = block[r % 2 * RUN + i] >> r / 2 & 1;
            v[i] = d * (float)((int)two_bits(block + 32, r, i) - 4 + 4 * third);
        }
    }
};

// Scale and minimum of 32 weights: 6 bits each, of 12 bytes.
__device__ inline void six_bits(const u8 *scales, u32 s, float &d, float &m) {
    const int scale = s < 4 ? scales[s] & 63 : (scales[s + 4] & 15) | scales[s - 4] >> 6 << 4;
    const int least = s < 4 ? scales[s + 4] & 63 : scales[s + 4] >> 4 | scales[s] >> 6 << 4;
    d *= (float)scale;
    m *= (float)least;
}

struct q4_k {
    static __device__ void run(float (&v)[RUN], const u8 *row, u32 r) {
        const u8 *block = row + (u64)(r / 16) * 144;
        r %= 16;
        float d = half_at(block), m = half_at(block + 2);
        six_bits(block + 4, r / 2, d, m);
        for (int i = 0; i < RUN; ++i) v[i] = d * (float)(block[16 + r / 4 * 32 + r % 2 * RUN + i] >> r / 2 % 2 * 4 & 15) - m;
    }
};

struct q5_k {
    static __device__ void run(float (&v)[RUN], const u8 *row, u32 r) {
        const u8 *block = row + (u64)(r / 16) * 176;
        r %= 16;
        float d = half_at(block), m = half_at(block + 2);
        six_bits(block + 4, r / 2, d, m);
        for (int i = 0; i < RUN; ++i) {
            const u32 low = block[48 + r / 4 * 32 + r % 2 * RUN + i] >> r / 2 % 2 * 4 & 15, fifth = block[16 + r % 2 * RUN + i] >> r / 2 & 1;
            v[i] = d * (float)(low | fifth << 4) - m;
        }
    }
};

struct q6_k {
    static __device__ void run(float (&v)[RUN], const u8 *row, u32 r) {
        const u8 *block = row + (u64)(r / 16) * 210;
        r %= 16;
        const float d = half_at(block + 208) * (float)(signed char)block[192 + r];
        for (int i = 0; i < RUN; ++i) {
            const u32 low = block[r / 8 * 64 + r % 4 * RUN + i] >> r % 8 / 4 * 4 & 15;
            v[i] = d * (float)((int)(low | two_bits(block + 128, r, i) << 4) - 32);
        }
    }
};

__device__ inline void store(float *at, float x) { *at = x; }
__device__ inline void store(__half *at, float x) { *at = __float2half_rn(x); }
__device__ inline void store(__nv_bfloat16 *at, float x) { *at = __float2bfloat16_rn(x); }

extern "C" __global__ void __launch_bounds__(THREADS)
dot(OUT *out, const u8 *w, const u8 *x, const int *tokens, const int *experts, const float *scales, Params p) {
    __shared__ float sums[THREADS];
    const u32 row = blockIdx.x, entry = blockIdx.y;
    u32 target = entry, from = entry;
    bool there = true;
    if (tokens) {
        const int token = tokens[entry], expert = experts[entry];
        // Out of range, nothing can be written.
        if (token < 0 || (u32)token >= p.entries) return;
        target = token;
        from = token / p.top;
        there = expert >= 0 && (u32)expert < p.experts && from < p.x_rows;
        if (there) w += (u64)expert * p.w_expert;
    }
    float sum = 0;
    if (there) {
        for (u32 r = threadIdx.x; r < p.columns / RUN; r += THREADS) {
            float a[RUN], b[RUN];
            W::run(a, w + row * p.w_row, r);
            X::run(b, x + from * p.x_row, r);
            for (int i = 0; i < RUN; ++i) sum += a[i] * b[i];
        }
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (u32 half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) store(out + target * p.out_row + row, scales ? sums[0] * scales[target] : sums[0]);
}
