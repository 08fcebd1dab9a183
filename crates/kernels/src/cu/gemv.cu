// A matrix times few vectors: bound by reading the matrix once.
//
// T is the type of matrix and vectors, U of the result; VECTORS is how many there are at most. ROWS rows at a time, UNROLL and DEPTH
// pieces of 16 bytes under way in `rows` and `columns`. In the Product the matrix is A (m × k),
// the vectors are B (k × n, n ≤ VECTORS). `rows` is for matrices whose rows are without gaps and aligned to 16 bytes, vectors too; `columns` for
// those whose columns are, and leaves sums of parts of k to `combine`.

#if defined(__AMDGCN__)
#define LANES WARPWAVE_WAVE_SIZE
#else
#define LANES 32
#endif
#define EACH (16 / (int)sizeof(T))

union Piece {
    uint4 raw;
    T each[EACH];
    __device__ Piece() {}
};
__device__ inline Piece piece(const T *at) {
    Piece piece;
    piece.raw = *(const uint4 *)at;
    return piece;
}

// Of the matrix, which is read once: the vectors are to stay in the cache instead. In the order of the calls.
__device__ inline Piece passing(const T *at) {
    Piece piece;
#if defined(__AMDGCN__)
    piece.raw = *(const uint4 *)at;
#else
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(piece.raw.x), "=r"(piece.raw.y), "=r"(piece.raw.z), "=r"(piece.raw.w)
                 : "l"(at));
#endif
    return piece;
}

__device__ inline f32 over_wave(f32 value) {
#pragma unroll
    for (int apart = LANES / 2; apart > 0; apart /= 2) value += __shfl_xor_sync(0xffffffffu, value, apart);
    return value;
}

// ROWS rows for each block.
extern "C" __global__ void __launch_bounds__(256) SYMBOL(NAME, _rows)(U *out, const T *a, const T *b, const U *bias, const __grid_constant__ Product p) {
    __shared__ f32 parts[256 / LANES][ROWS * VECTORS];
    const u64 m0 = (u64)blockIdx.x * ROWS, whole = p.k / EACH * EACH, step = (u64)blockDim.x * EACH;
    for (u64 batch = blockIdx.y; batch < p.batches; batch += gridDim.y) {
        const T *row[ROWS], *vectors = b + batch_offset(p, 1, batch), *matrix = a + batch_offset(p, 0, batch);
        f32 sums[ROWS][VECTORS];
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            // Beyond the last row, the last once more; vectors alike.
            row[r] = matrix + min(m0 + r, p.m - 1) * p.a[0];
#pragma unroll
            for (int v = 0; v < VECTORS; ++v) sums[r][v] = 0;
        }
        const auto add = [&](const Piece *x, u64 at) {
#pragma unroll
            for (int v = 0; v < VECTORS; ++v) {
                const Piece y = piece(vectors + min((u64)v, p.n - 1) * p.b[1] + at);
#pragma unroll
                for (int r = 0; r < ROWS; ++r) {
#pragma unroll
                    for (int e = 0; e < EACH; ++e) sums[r][v] += widen(x[r].each[e]) * widen(y.each[e]);
                }
            }
        };
        u64 at = threadIdx.x * EACH;
        for (; at + (UNROLL - 1) * step < whole; at += UNROLL * step) {
            // All loads of the matrix are under way before the first is needed.
            Piece x[UNROLL][ROWS];
#pragma unroll
            for (int i = 0; i < UNROLL * ROWS; ++i) x[i / ROWS][i % ROWS] = passing(row[i % ROWS] + at + i / ROWS * step);
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) add(x[u], at + u * step);
        }
#pragma unroll 1
        for (; at < whole; at += step) {
            Piece x[ROWS];
#pragma unroll
            for (int r = 0; r < ROWS; ++r) x[r] = passing(row[r] + at);
            add(x, at);
        }
        // What is left of k: less than a piece.
        for (u64 k = whole + threadIdx.x; k < p.k; k += blockDim.x) {
#pragma unroll
            for (int v = 0; v < VECTORS; ++v) {
                const f32 y = widen(vectors[min((u64)v, p.n - 1) * p.b[1] + k]);
#pragma unroll
                for (int r = 0; r < ROWS; ++r) sums[r][v] += widen(row[r][k]) * y;
            }
        }
        const int wave = threadIdx.x / LANES, lane = threadIdx.x % LANES;
#pragma unroll
        for (int i = 0; i < ROWS * VECTORS; ++i) {
            const f32 sum = over_wave(sums[i / VECTORS][i % VECTORS]);
            if (lane == 0) parts[wave][i] = sum;
        }
        __syncthreads();
        const u64 m = m0 + threadIdx.x / VECTORS, n = threadIdx.x % VECTORS;
        if (threadIdx.x < ROWS * VECTORS && m < p.m && n < p.n) {
            f32 sum = 0;
            for (int w = 0; w < blockDim.x / LANES; ++w) sum += parts[w][threadIdx.x];
            U *place = out + batch_offset(p, 2, batch) + m * p.c[0] + n * p.c[1];
            const U *add = bias + (p.has_bias ? batch_offset(p, 3, batch) + m * p.bias[0] + n * p.bias[1] : 0);
            *place = Narrow<U>::from(finish<U, f32>(p, sum, place, add));
        }
        __syncthreads();
    }
}

// 32 pieces of columns for each block of 256, and one part of k, of at most MOST / VECTORS: blocks of y are parts, blocks of z the batch.
#define MOST 4096
extern "C" __global__ void __launch_bounds__(256) SYMBOL(NAME, _columns)(f32 *sums_of_parts, const T *a, const T *b, const __grid_constant__ Product p) {
    constexpr int HEIGHT = MOST / VECTORS;
    __shared__ f32 room[8][32 * EACH + 1];
    __shared__ __align__(16) f32 factors[VECTORS][HEIGHT];
    const int across = threadIdx.x % 32, down = threadIdx.x / 32;
    const u64 m0 = (u64)blockIdx.x * 32 * EACH, m = m0 + across * EACH;
    const u64 each = (p.k + p.parts - 1) / p.parts, begin = min(blockIdx.y * each, p.k);
    const int height = (int)min(each, p.k - begin);
    for (u64 batch = blockIdx.z; batch < p.batches; batch += gridDim.z) {
        const T *matrix = a + batch_offset(p, 0, batch) + begin * p.a[1], *vectors = b + batch_offset(p, 1, batch) + begin * p.b[0];
        for (int i = threadIdx.x; i < height * VECTORS; i += 256) {
            const int k = i % height, v = i / height;
            factors[v][k] = v < p.n ? widen(vectors[v * p.b[1] + k * p.b[0]]) : 0;
        }
        __syncthreads();
        f32 sums[VECTORS][EACH];
#pragma unroll
        for (int i = 0; i < VECTORS * EACH; ++i) sums[i / EACH][i % EACH] = 0;
        const auto add = [&](const Piece &x, int k) {
#pragma unroll
            for (int v = 0; v < VECTORS; ++v) {
#pragma unroll
                for (int e = 0; e < EACH; ++e) sums[v][e] += widen(x.each[e]) * factors[v][k];
            }
        };
        if (m + EACH <= p.m) {
            const T *column = matrix + m;
            int k = down * DEPTH;
            for (; k + DEPTH <= height; k += 8 * DEPTH) {
                Piece x[DEPTH];
#pragma unroll
                for (int i = 0; i < DEPTH; ++i) x[i] = passing(column + (k + i) * p.a[1]);
#pragma unroll
                for (int i = 0; i < DEPTH; ++i) add(x[i], k + i);
            }
#pragma unroll 1
            for (; k < height; ++k) add(piece(column + k * p.a[1]), k);
        } else if (m < p.m) {
#pragma unroll 1
            for (int k = down; k < height; k += 8) {
                Piece x;
#pragma unroll
                for (int e = 0; e < EACH; ++e) x.each[e] = m + e < p.m ? matrix[m + e + k * p.a[1]] : T();
                add(x, k);
            }
        }
#pragma unroll
        for (int v = 0; v < VECTORS; ++v) {
            if (v >= p.n) break;
            __syncthreads();
#pragma unroll
            for (int e = 0; e < EACH; ++e) room[down][across * EACH + e] = sums[v][e];
            __syncthreads();
            for (u64 i = threadIdx.x; i < 32 * EACH && m0 + i < p.m; i += 256) {
                f32 sum = 0;
#pragma unroll
                for (int d = 0; d < 8; ++d) sum += room[d][i];
                sums_of_parts[((batch * p.parts + blockIdx.y) * p.n + v) * p.m + m0 + i] = sum;
            }
        }
        __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(256) SYMBOL(NAME, _combine)(U *out, const f32 *sums_of_parts, const U *bias, const __grid_constant__ Product p) {
    const u64 elements = p.m * p.n;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < elements * p.batches; i += (u64)gridDim.x * 256) {
        const u64 batch = i / elements, within = i % elements, m = within % p.m, n = within / p.m;
        f32 sum = 0;
#pragma unroll 8
        for (u32 part = 0; part < p.parts; ++part) sum += sums_of_parts[(batch * p.parts + part) * elements + within];
        U *place = out + batch_offset(p, 2, batch) + m * p.c[0] + n * p.c[1];
        const U *add = bias + (p.has_bias ? batch_offset(p, 3, batch) + m * p.bias[0] + n * p.bias[1] : 0);
        *place = Narrow<U>::from(finish<U, f32>(p, sum, place, add));
    }
}
