// Convolution of f32 as an implicit matrix product with FMAs, in shared-memory tiles: any strides of the input and the result.
//
// Weights are packed: a filter's taps with their channels innermost are adjacent. A block of 256 threads computes TILE pixels of TILE
// filters, each thread 4 × 4 of them.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME conv_simt_f32
#define T f32
#define TRANSPOSED 0
#endif

#include "conv/conv.cuh"

#define TILE 64
#define BK 16
#define STRIDE (TILE + 4)
#define EACH (TILE * BK / 256)

extern "C" __global__ void __launch_bounds__(256) NAME(T *out, const T *__restrict__ x, const T *__restrict__ w, const T *__restrict__ bias, const __grid_constant__ Conv p) {
    struct alignas(16) Four { T at[4]; };
    __shared__ __align__(16) T smem[2][2][BK * STRIDE];
    const u32 group = blockIdx.y;
    const u32 m0 = blockIdx.x % p.tiles[0] * TILE, n0 = blockIdx.x / p.tiles[0] * TILE;
    x += (u64)group * p.channels * p.x[1];
    w += group * p.w_group;
    const int across = threadIdx.x % 16 * 4, down = threadIdx.x / 16 * 4;
    // Coalesce: adjacent lanes read adjacent channels, or adjacent pixels.
    const bool by_k = p.x[1] < p.x[3];
    const auto place = [&](int i) -> int { return by_k ? threadIdx.x / BK + i * (256 / BK) : threadIdx.x % TILE; };
    const auto k_of = [&](int i) -> int { return by_k ? threadIdx.x % BK : threadIdx.x / TILE + i * (256 / TILE); };
    Pixel pixels[EACH];
#pragma unroll
    for (int i = 0; i < EACH; ++i) pixels[i] = pixel_of(p, m0 + place(i));
    // Rows of weights are adjacent along k.
    const u32 weight_row = threadIdx.x / BK, weight_k = threadIdx.x % BK;
    T a[EACH], b[EACH], sums[4][4];
#pragma unroll
    for (int i = 0; i < 16; ++i) sums[i / 4][i % 4] = 0;
    const auto load = [&](u32 k0) {
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            const u32 k = k0 + k_of(i), filter = n0 + weight_row + i * (256 / BK);
            a[i] = k < p.k ? input_element(p, x, pixels[i], k) : (T)0;
            b[i] = k0 + weight_k < p.k && filter < p.filters ? w[filter * p.w[0] + k0 + weight_k] : (T)0;
        }
    };
    const auto store = [&](int to) {
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            smem[to][0][k_of(i) * STRIDE + place(i)] = a[i];
            smem[to][1][weight_k * STRIDE + weight_row + i * (256 / BK)] = b[i];
        }
    };
    load(0);
    store(0);
    __syncthreads();
    int now = 0;
    for (u32 k0 = 0; k0 < p.k; k0 += BK) {
        const bool more = k0 + BK < p.k;
        if (more) load(k0 + BK);
#pragma unroll 4
        for (int k = 0; k < BK; ++k) {
            const Four left = *(const Four *)&smem[now][0][k * STRIDE + down], right = *(const Four *)&smem[now][1][k * STRIDE + across];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
#pragma unroll
                for (int j = 0; j < 4; ++j) sums[i][j] += left.at[i] * right.at[j];
            }
        }
        now ^= 1;
        if (more) store(now);
        __syncthreads();
    }
    // Through shared memory, so that the epilogue is instantiated once and stores coalesce.
    T *const staging = smem[0][0];
    static_assert(4 * BK * STRIDE >= TILE * TILE, "the sums' smem");
#pragma unroll
    for (int i = 0; i < 16; ++i) staging[(down + i / 4) * TILE + across + i % 4] = sums[i / 4][i % 4];
    __syncthreads();
    const bool by_filter = p.out[1] < p.out[3];
#pragma unroll 1
    for (int at = threadIdx.x; at < TILE * TILE; at += 256) {
        const u32 row = by_filter ? at / TILE : at % TILE, column = by_filter ? at % TILE : at / TILE;
        const u32 m = m0 + row, filter = n0 + column;
        if (m >= p.pixels || filter >= p.filters) continue;
        const u64 channel = (u64)group * p.filters + filter;
        const f32 add = p.has_bias ? bias[channel * p.bias] : 0.0f;
        out[result_offset(p, m) + channel * p.out[1]] = finish(p, staging[row * TILE + column], add);
    }
}
