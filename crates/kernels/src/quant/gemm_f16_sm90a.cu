// warpwave: needs sm_90a
// Quantized matrix product of f16 for many vectors on Hopper: out[v] = W · x[v], sums f32. x is packed by pack.cu. wgmma takes weights from
// registers, where they are dequantized, and x from shared memory. NVIDIA sm_90a only.
//
// A block has 128 rows of W, 16 per warp, and VECTORS vectors. It iterates over panels of 64 columns of x, a quarter of a chunk; while the
// products of a panel run, the weights of the next are dequantized. Columns may also be divided over blocks (blockIdx.z), whose sums
// finish.cu adds.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME quant_gemm_f16_sm90a_q4_0_f16
#define T q4_0
#define U f16
#define VECTORS 256
#endif

#include "common/pdl.cuh"
#include "common/sm90.cuh"
#include "quant/halves.cuh"

struct GemmParams {
    // Row pitch of the weights in bytes; row and column stride of the result in elements.
    u64 weights_row, out_row, out_stride;
    u32 rows, units, vectors, chunks;
    // Blocks that share the columns; whether the weights may be read while the previous kernel runs.
    u32 parts, prefetchable, share, unused;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

#define THREADS 256
#define ROWS 128
// Panels in flight; a chunk has four.
#define PANELS 4

constexpr int PANEL_BYTES = VECTORS * 128, CHUNK_BYTES = ROWS * ChunkRows<T>::STRIDE;

// c = a · bᵀ (+ c) of 64 × N and 16 columns, a in registers, b in shared memory with its columns adjacent.
#define WGMMA_REGISTERS(N, R, NUMBERS, A, B, KEEP)                                                                                 \
    __device__ inline void multiply(Width<N>, f32 *c, const u32 (&a)[4], u64 b, int keep) {                                        \
        asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, " KEEP ", 0;\n"                                                       \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.f16.f16 {" NUMBERS "}, {" A "}, " B ", keep, 1, 1, 0;\n}"     \
                     : R(c, 0)                                                                                                     \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep)                                               \
                     : "memory");                                                                                                  \
    }
WGMMA_REGISTERS(128, R64, N64, "%64, %65, %66, %67", "%68", "%69")
WGMMA_REGISTERS(256, R128, N128, "%128, %129, %130, %131", "%132", "%133")

struct Source {
    const u8 *weights;
    const f16 *x;
    u32 row0, vector0;
};

// Copies the rows of a chunk; zeros beyond the last column and row.
__device__ inline void copy_weights(u8 *to, const Source &from, const GemmParams &p, u32 chunk) {
    constexpr int PIECES = ChunkRows<T>::PIECES;
    const u64 offset = (u64)chunk * ChunkRows<T>::BYTES;
#pragma unroll 1
    for (int at = threadIdx.x; at < ROWS * PIECES; at += THREADS) {
        const int piece = at % PIECES, row = at / PIECES;
        const u32 wanted = from.row0 + row, there = wanted < p.rows ? wanted : p.rows - 1;
        const u8 *begin = from.weights + there * p.weights_row;
        const i64 first = (i64)offset + piece * 16 - (i64)((u64)(begin + offset) % 16);
        i64 left = wanted < p.rows ? (i64)p.weights_row - first : 0;
        left = left < 0 ? 0 : left > 16 ? 16 : left;
        // What is not read is still an aligned address of the matrix.
        const u8 *source = left ? begin + first : (const u8 *)((u64)begin & ~15ull);
        copy_async16(to + row * ChunkRows<T>::STRIDE + piece * 16, source, (int)left);
    }
}

// Copies a panel of x, 128 bytes of each vector, swizzled as wgmma reads them; zeros beyond the last vector.
__device__ inline void copy_panel(u8 *to, const Source &from, const GemmParams &p, u32 panel) {
    const int piece = threadIdx.x % 8;
#pragma unroll
    for (int i = 0; i < VECTORS * 8 / THREADS; ++i) {
        const int row = i * (THREADS / 8) + threadIdx.x / 8;
        const bool there = from.vector0 + row < p.vectors;
        const f16 *source = from.x + (there ? (u64)(from.vector0 + row) * p.chunks * Operand<T>::COLUMNS : 0) + panel * 64 + piece * 8;
        copy_async16(to + row * 128 + (piece ^ row % 8) * 16, source, there ? 16 : 0);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
NAME(U *out, f32 *partial, const u8 *weights, const void *scales, const u8 *zeros, Groups groups, const f16 *x, GemmParams p) {
    extern __shared__ __align__(1024) u8 shared[];
    // Panels aligned to 1024 bytes, then two chunks of weights.
    u8 *const panels = shared + (0 - shared_address_of(shared)) % 1024, *const ring = panels + PANELS * PANEL_BYTES;
    const SeparateScales separate = {scales, zeros, groups};
    const Source source = {weights, x, blockIdx.x * ROWS, blockIdx.y * VECTORS};
    const int warp = threadIdx.x / 32;
    const u32 begin_chunk = (u32)((u64)p.chunks * blockIdx.z / p.parts), end_chunk = (u32)((u64)p.chunks * (blockIdx.z + 1) / p.parts);
    const u32 end_panel = end_chunk * 4;

    pdl_launch_dependents();
    if (!p.prefetchable) pdl_wait();
    copy_weights(ring, source, p, begin_chunk);
    if (p.prefetchable) pdl_wait();
    u32 panel = begin_chunk * 4;
#pragma unroll
    for (int i = 0; i < PANELS - 1; ++i) {
        copy_panel(panels + i * PANEL_BYTES, source, p, panel + i);
        commit_copies();
    }

    f32 sums[VECTORS / 2];
    LaneUnits<T> own;
    u32 a[2][4][4];
    const u64 row_address = (u64)weights + (u64)(source.row0 + warp * 16) * p.weights_row;
    // Loads the units of a group of 128 columns, whose weights have arrived.
    const auto load = [&](u32 group) {
        const u32 chunk = group / 2;
        own.load(ring + (chunk - begin_chunk) % 2 * CHUNK_BYTES + warp * 16 * ChunkRows<T>::STRIDE, (u32)(row_address + (u64)chunk * ChunkRows<T>::BYTES) % 16,
                 (u32)p.weights_row % 16, group % 2, separate, source.row0 + warp * 16, p.rows - 1, chunk * 8, p.units - 1);
    };
    const auto dequantize = [&](u32 (&to)[4][4], int first) {
#pragma unroll
        for (int s = 0; s < 4; ++s) {
            const TileA<f16> tile = own.tile(first + s);
#pragma unroll
            for (int i = 0; i < 4; ++i) to[s][i] = tile.words[i];
        }
    };
    wait_copies<PANELS - 2>();
    __syncthreads();
    load(begin_chunk * 2);
    dequantize(a[0], 0);
#pragma unroll 1
    while (panel < end_panel) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            // This panel, and the weights of the next, have arrived; nobody reads the panel before this any more.
            wait_copies<PANELS - 2>();
            fence_async_proxy();
            __syncthreads();
            const u32 ahead = panel + PANELS - 1;
            if (ahead < end_panel) copy_panel(panels + ahead % PANELS * PANEL_BYTES, source, p, ahead);
            const u32 chunk = panel / 4 + 1;
            if (panel % 4 == 0 && chunk < end_chunk) copy_weights(ring + (chunk - begin_chunk) % 2 * CHUNK_BYTES, source, p, chunk);
            commit_copies();
            const u32 at = shared_address_of(panels) + panel % PANELS * PANEL_BYTES;
            begin();
#pragma unroll
            for (int s = 0; s < 4; ++s) multiply(Width<VECTORS>(), sums, a[half][s], descriptor(at + s * 32, 16), s > 0 || panel > begin_chunk * 4);
            commit();
            // Meanwhile the weights of the next panel are dequantized.
            panel += 1;
            if (half == 0) {
                dequantize(a[1], 4);
            } else if (panel < end_panel) {
                load(panel / 2);
                dequantize(a[0], 0);
            }
            wait<0>();
            mark_written(sums);
        }
    }

    // Sums by vector and row; padded against bank conflicts.
    constexpr int PITCH = ROWS + 4;
    f32 *const staging = (f32 *)panels;
    wait_copies<0>();
    __syncthreads();
#pragma unroll
    for (int i = 0; i < VECTORS / 2; ++i) {
        const int vector = i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2, row = warp * 16 + threadIdx.x % 32 / 4 + i / 2 % 2 * 8;
        staging[vector * PITCH + row] = sums[i];
    }
    __syncthreads();
#pragma unroll 4
    for (int at = threadIdx.x; at < VECTORS * ROWS; at += THREADS) {
        const u32 row = source.row0 + at % ROWS, vector = source.vector0 + at / ROWS;
        if (row >= p.rows || vector >= p.vectors) continue;
        const f32 sum = staging[at / ROWS * PITCH + at % ROWS];
        if (p.parts > 1) partial[((u64)blockIdx.z * p.vectors + vector) * p.rows + row] = sum;
        else out[vector * p.out_row + row * p.out_stride] = Narrow<U>::from(sum);
    }
}

#else
extern "C" __global__ void NAME() {}
#endif
