// A matrix times few vectors: bound by reading the matrix once.
//
// T is the type of matrix and vectors, U of the result; VECTORS is the maximum number of vectors. ROWS rows at a time, UNROLL (`rows`) or
// DEPTH (`columns`) 16-byte vectors in flight. The matrix is A (m × k), the vectors are B (k × n, n ≤ VECTORS). `rows` is for row-major
// matrices with aligned rows; `columns` for column-major ones, with split-K partial sums that `combine` adds.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME gemv_f16_f16
#define T f16
#define U f16
#define VECTORS 1
#define ROWS 2
#define UNROLL 4
#define DEPTH 8
#endif

#include "common/pdl.cuh"
#include "matmul/gemm.cuh"

#define EACH (16 / (int)sizeof(T))

// Explicit, or NVIDIA's compiler assumes fewer registers and serializes the loads.
#define BLOCKS_PER_SM (VECTORS == 1 ? 4 : 2)

union Vec16 {
    uint4 raw;
    T each[EACH];
    __device__ Vec16() {}
};
__device__ inline uint4 raw(const T *at) { return *(const uint4 *)at; }

__device__ inline f32 wave_sum(f32 value) {
#pragma unroll
    for (int apart = WAVE / 2; apart > 0; apart /= 2) value += __shfl_xor_sync(0xffffffffu, value, apart);
    return value;
}

// Start of each vector; beyond the last, the last is repeated.
__device__ inline void each_vector(const T *(&vector)[VECTORS], const T *vectors, const Gemm &p) {
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
        vector[v] = vectors + min((u64)v, p.n - 1) * p.b[1];
#if defined(__AMDGCN__)
        // Scalar registers do not suffice for many.
        if (VECTORS > 2) asm volatile("" : "+v"(vector[v]));
#endif
    }
}

// Applies the epilogue and stores a result.
__device__ inline void store_result(U *out, const U *bias, const Gemm &p, u64 batch, u64 m, u64 n, f32 sum) {
    U *place = out + batch_offset(p, 2, batch) + m * p.c[0] + n * p.c[1];
    const U *add = bias + (p.has_bias ? batch_offset(p, 3, batch) + m * p.bias[0] + n * p.bias[1] : 0);
    *place = Narrow<U>::from(epilogue<U, f32>(p, sum, place, add));
}

// ROWS rows per block.
extern "C" __global__ void __launch_bounds__(256, BLOCKS_PER_SM) KERNEL_NAME(NAME, _rows)(U *out, const T *a, const T *b, const U *bias, const __grid_constant__ Gemm p) {
    __shared__ f32 parts[256 / WAVE][ROWS * VECTORS];
    pdl_sync();
    const u64 m0 = (u64)blockIdx.x * ROWS;
    for (u64 batch = blockIdx.y; batch < p.batches; batch += gridDim.y) {
        const T *row[ROWS], *vector[VECTORS], *vectors = b + batch_offset(p, 1, batch), *matrix = a + batch_offset(p, 0, batch);
        f32 sums[ROWS][VECTORS];
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            // Beyond the last row, the last is repeated.
            row[r] = matrix + min(m0 + r, p.m - 1) * p.a[0];
#pragma unroll
            for (int v = 0; v < VECTORS; ++v) sums[r][v] = 0;
        }
        each_vector(vector, vectors, p);
        const auto add = [&](const Vec16 *x, u64 at) {
#pragma unroll
            for (int v = 0; v < VECTORS; ++v) {
                Vec16 y;
                y.raw = raw(vector[v] + at);
#pragma unroll
                for (int r = 0; r < ROWS; ++r) {
#pragma unroll
                    for (int e = 0; e < EACH; ++e) sums[r][v] += widen(x[r].each[e]) * widen(y.each[e]);
                }
            }
        };
        // UNROLL consecutive wave-wide reads share one address.
        const int wave = threadIdx.x / WAVE, lane = threadIdx.x % WAVE;
        u64 at = (wave * UNROLL * WAVE + lane) * EACH;
        for (; at + (UNROLL - 1) * WAVE * EACH < p.k; at += blockDim.x * UNROLL * EACH) {
            // All loads of the matrix are issued before the first is used.
            Vec16 x[UNROLL][ROWS];
#pragma unroll
            for (int i = 0; i < UNROLL * ROWS; ++i) x[i / ROWS][i % ROWS].raw = raw(row[i % ROWS] + at + i / ROWS * WAVE * EACH);
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) add(x[u], at + u * WAVE * EACH);
        }
#pragma unroll 1
        for (int u = 0; u < UNROLL && at < p.k; ++u, at += WAVE * EACH) {
            Vec16 x[ROWS];
#pragma unroll
            for (int r = 0; r < ROWS; ++r) x[r].raw = raw(row[r] + at);
            add(x, at);
        }
        const Gemm &q = reload_params(p);
#pragma unroll
        for (int i = 0; i < ROWS * VECTORS; ++i) {
            const f32 sum = wave_sum(sums[i / VECTORS][i % VECTORS]);
            if (lane == 0) parts[wave][i] = sum;
        }
        __syncthreads();
        const u64 m = m0 + threadIdx.x / VECTORS, n = threadIdx.x % VECTORS;
        if (threadIdx.x < ROWS * VECTORS && m < q.m && n < q.n) {
            f32 sum = 0;
            for (int w = 0; w < blockDim.x / WAVE; ++w) sum += parts[w][threadIdx.x];
            store_result(out, bias, q, batch, m, n, sum);
        }
        __syncthreads();
    }
}

// As in the launcher.
#define ACROSS 8
#define COLUMN_THREADS 512
#define DOWN (COLUMN_THREADS / ACROSS)

// ACROSS 16-byte column vectors per block, and one split of k: blocks in y are splits, in z the batch. With several splits, sums go to `to`
// for `combine`; otherwise they are results.
extern "C" __global__ void __launch_bounds__(COLUMN_THREADS, BLOCKS_PER_SM / 2) KERNEL_NAME(NAME, _columns)(void *to, const T *a, const T *b, const U *bias, const __grid_constant__ Gemm p) {
    __shared__ f32 smem[DOWN][ACROSS * EACH + 1];
    pdl_sync();
    const int across = threadIdx.x % ACROSS, down = threadIdx.x / ACROSS;
    const u64 m0 = (u64)blockIdx.x * ACROSS * EACH, m = m0 + across * EACH, begin = min((u64)blockIdx.y * p.part, p.k);
    const int height = (int)min((u64)p.part, p.k - begin);
    for (u64 batch = blockIdx.z; batch < p.batches; batch += gridDim.z) {
        const T *column = a + batch_offset(p, 0, batch) + m + (begin + down) * p.a[1];
        const T *vector[VECTORS];
        each_vector(vector, b + batch_offset(p, 1, batch) + (begin + down) * p.b[0], p);
        f32 sums[VECTORS][EACH];
#pragma unroll
        for (int i = 0; i < VECTORS * EACH; ++i) sums[i / EACH][i % EACH] = 0;
        // Accumulates a vector of the i-th line from here, DOWN lines apart.
        const auto add = [&](const Vec16 &x, int i) {
#pragma unroll
            for (int v = 0; v < VECTORS; ++v) {
                const f32 factor = widen(vector[v][DOWN * i * p.b[0]]);
#pragma unroll
                for (int e = 0; e < EACH; ++e) sums[v][e] += widen(x.each[e]) * factor;
            }
        };
        int k = down;
        if (m + EACH <= p.m) {
            for (; k + DOWN * (DEPTH - 1) < height; k += DOWN * DEPTH) {
                Vec16 x[DEPTH];
#pragma unroll
                for (int i = 0; i < DEPTH; ++i) x[i].raw = raw(column + DOWN * i * p.a[1]);
#pragma unroll
                for (int i = 0; i < DEPTH; ++i) add(x[i], i);
                column += DOWN * DEPTH * p.a[1];
#pragma unroll
                for (int v = 0; v < VECTORS; ++v) vector[v] += DOWN * DEPTH * p.b[0];
            }
        }
#pragma unroll 1
        for (; k < height && m < p.m; k += DOWN) {
            Vec16 x;
#pragma unroll
            for (int e = 0; e < EACH; ++e) x.each[e] = m + e < p.m ? column[e] : T();
            add(x, 0);
            column += DOWN * p.a[1];
#pragma unroll
            for (int v = 0; v < VECTORS; ++v) vector[v] += DOWN * p.b[0];
        }
        const Gemm &q = reload_params(p);
#pragma unroll
        for (int v = 0; v < VECTORS; ++v) {
            if (v >= q.n) break;
            __syncthreads();
#pragma unroll
            for (int e = 0; e < EACH; ++e) smem[down][across * EACH + e] = sums[v][e];
            __syncthreads();
            for (u64 i = threadIdx.x; i < ACROSS * EACH && m0 + i < q.m; i += COLUMN_THREADS) {
                f32 sum = 0;
#pragma unroll
                for (int d = 0; d < DOWN; ++d) sum += smem[d][i];
                if (q.parts > 1) ((f32 *)to)[((batch * q.parts + blockIdx.y) * q.n + v) * q.m + m0 + i] = sum;
                else store_result((U *)to, bias, q, batch, m0 + i, v, sum);
            }
        }
        __syncthreads();
    }
}

// Combines split-K partial sums: blocks in x are m, in y n, in z the batch.
extern "C" __global__ void __launch_bounds__(256) KERNEL_NAME(NAME, _combine)(U *out, const f32 *partial_sums, const U *bias, const __grid_constant__ Gemm p) {
    const u64 m = (u64)blockIdx.x * 256 + threadIdx.x;
    pdl_sync();
    if (m >= p.m) return;
    for (u64 batch = blockIdx.z; batch < p.batches; batch += gridDim.z) {
        for (u64 n = blockIdx.y; n < p.n; n += gridDim.y) {
            const f32 *from = partial_sums + (batch * p.parts * p.n + n) * p.m + m;
            f32 sum = 0;
#pragma unroll 8
            for (u32 part = 0; part < p.parts; ++part) sum += from[part * p.n * p.m];
            store_result(out, bias, p, batch, m, n, sum);
        }
    }
}
