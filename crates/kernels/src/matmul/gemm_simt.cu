// Matrix products of f32 and f64 with FMAs, in shared-memory tiles: any strides.
//
// T is the type of everything. A block of 256 threads computes a TILE × TILE tile, each thread 1/16 in both directions.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME gemm_f32
#define T f32
#endif

#include "matmul/gemm.cuh"

#define TILE (sizeof(T) == 8 ? 64 : 128)
#define BK (sizeof(T) == 8 ? 8 : 16)

// One operand's part of a tile: TILE positions along the result, BK along k.
struct TileLoader {
    static constexpr int EACH = TILE * BK / 256, STRIDE = TILE + 4;
    T registers[EACH];
    // Coalesce: adjacent lanes read adjacent memory.
    bool by_k;
    __device__ int place(int i) const { return by_k ? threadIdx.x / BK + i * (256 / BK) : threadIdx.x % TILE; }
    __device__ int k(int i) const { return by_k ? threadIdx.x % BK : threadIdx.x / TILE + i * (256 / TILE); }
    // Beyond the edges the last element is repeated: along k it counts as 0, and other results are not stored.
    __device__ void load(const T *from, u64 stride, u64 stride_k, int places, int ks) {
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            const T element = from[min(place(i), places - 1) * stride + min(k(i), ks - 1) * stride_k];
            registers[i] = k(i) < ks ? element : (T)0;
        }
    }
    __device__ void store(T *to) const {
#pragma unroll
        for (int i = 0; i < EACH; ++i) to[k(i) * STRIDE + place(i)] = registers[i];
    }
};

extern "C" __global__ void __launch_bounds__(256) NAME(T *out, const T *a, const T *b, const T *bias, const __grid_constant__ Gemm p) {
    // Groups of four adjacent elements, spread over the tile.
    constexpr int FOURS = TILE / 64;
    struct alignas(16) Four { T at[4]; };
    __shared__ __align__(16) T smem[2][2][BK * TileLoader::STRIDE];
    const int across = threadIdx.x % 16 * 4, down = threadIdx.x / 16 * 4;
    const u64 m0 = (u64)(blockIdx.x % p.tiles[0]) * TILE, n0 = (u64)(blockIdx.x / p.tiles[0]) * TILE;
    for (u64 batch = blockIdx.y; batch < p.batches; batch += gridDim.y) {
        const T *from_a = a + batch_offset(p, 0, batch) + m0 * p.a[0], *from_b = b + batch_offset(p, 1, batch) + n0 * p.b[1];
        TileLoader loader_a, loader_b;
        loader_a.by_k = p.a[1] < p.a[0];
        loader_b.by_k = p.b[0] < p.b[1];
        T sums[FOURS * 4][FOURS * 4];
#pragma unroll
        for (int i = 0; i < FOURS * FOURS * 16; ++i) sums[i / (FOURS * 4)][i % (FOURS * 4)] = 0;
        i64 left = p.k;
        const auto load = [&] {
            const int ks = (int)min((i64)BK, left);
            loader_a.load(from_a, p.a[0], p.a[1], (int)min((i64)TILE, (i64)(p.m - m0)), ks);
            loader_b.load(from_b, p.b[1], p.b[0], (int)min((i64)TILE, (i64)(p.n - n0)), ks);
            from_a += BK * p.a[1];
            from_b += BK * p.b[0];
            left -= BK;
        };
        if (left > 0) load();
        loader_a.store(smem[0][0]);
        loader_b.store(smem[0][1]);
        __syncthreads();
        int now = 0;
        for (i64 k0 = 0; k0 < (i64)p.k; k0 += BK) {
            const bool more = left > 0;
            if (more) load();
#pragma unroll 4
            for (int k = 0; k < BK; ++k) {
                T x[FOURS * 4], y[FOURS * 4];
#pragma unroll
                for (int f = 0; f < FOURS; ++f) {
                    *(Four *)(x + 4 * f) = *(const Four *)&smem[now][0][k * TileLoader::STRIDE + f * 64 + down];
                    *(Four *)(y + 4 * f) = *(const Four *)&smem[now][1][k * TileLoader::STRIDE + f * 64 + across];
                }
#pragma unroll
                for (int i = 0; i < FOURS * 4; ++i) {
#pragma unroll
                    for (int j = 0; j < FOURS * 4; ++j) sums[i][j] += x[i] * y[j];
                }
            }
            now ^= 1;
            if (more) {
                loader_a.store(smem[now][0]);
                loader_b.store(smem[now][1]);
            }
            __syncthreads();
        }
        const Gemm &q = reload_params(p);
        T *to = out + batch_offset(q, 2, batch) + (m0 + down) * q.c[0] + (n0 + across) * q.c[1];
        const T *add = bias + (q.has_bias ? batch_offset(q, 3, batch) + (m0 + down) * q.bias[0] + (n0 + across) * q.bias[1] : 0);
        const int rows = (int)min((i64)TILE, (i64)(q.m - m0)) - down, columns = (int)min((i64)TILE, (i64)(q.n - n0)) - across;
        // Accumulators are stored one by one through the operands' memory, so that the long epilogue is instantiated once.
        T *own = smem[0][0] + threadIdx.x;
#pragma unroll 1
        for (int pass = 0; pass < FOURS * 4; ++pass) {
            const int row = pass / 4 * 64 + pass % 4;
#pragma unroll
            for (int i = 0; i < FOURS * 4; ++i) {
                if (i != pass) continue;
#pragma unroll
                for (int j = 0; j < FOURS * 4; ++j) own[j * 256] = sums[i][j];
            }
            if (row >= rows) break;
#pragma unroll 1
            for (int j = 0; j < FOURS * 4; ++j) {
                const int column = j / 4 * 64 + j % 4;
                if (column >= columns) break;
                T *place = to + row * q.c[0] + column * q.c[1];
                *place = epilogue<T, T>(q, own[j * 256], place, add + row * q.bias[0] + column * q.bias[1]);
            }
        }
        __syncthreads();
    }
}
