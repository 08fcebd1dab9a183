// warpwave: needs sm_90a
// Convolution of f16 and bf16 in NHWC as an implicit matrix product on Hopper: the copy engine gathers pixels (im2col mode of its tensor
// maps, zeros outside the image), wgmma multiplies. NVIDIA sm_90a only.
//
// Warp-specialized and persistent: one thread copies tiles of 64 channels of a tap, STAGES ahead and across tiles of the result; two
// warpgroups multiply BM / 2 pixels by BN filters each. Sums go to `partial` if k is divided over blocks (`splits` > 1), or if there is an
// activation: conv_finish.cu does the rest.
// Clusters that multicast shared operands were slower on an H200, in every shape tried (0.4 to 0.9 of the speed).

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME conv_sm90a_f16
#define T f16
#define BM 128
#define BN 160
#define STAGES 6
#endif

#define TRANSPOSED 0
#include "common/sm90.cuh"
#include "common/tile.cuh"
#include "conv/conv.cuh"

// A tensor map of the driver; opaque.
struct alignas(64) TensorMap { u64 opaque[16]; };

// What the tensor maps do not say.
struct Split {
    // Blocks that share a tile of the result, and steps of 64 channels in all.
    u32 splits, steps;
    // Steps of a tap.
    u32 tap_steps;
    u32 unused;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

#define THREADS 384
#define BK 64
#define ROWS (BM / 2 / 64)
#define LOADER_REGISTERS 40
#define COMPUTE_REGISTERS 232

// Copies the tap of BM pixels, from the one that starts at `pixel` on.
__device__ inline void copy_pixels(u32 to, const TensorMap &map, Barrier full, i32 channel, const Pixel &pixel, u16 tap_x, u16 tap_y) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6], "
                 "{%7, %8};" ::"r"(to),
                 "l"(&map), "r"(channel), "r"(pixel.x), "r"(pixel.y), "r"((i32)pixel.image), "r"(full.at), "h"(tap_x), "h"(tap_y)
                 : "memory");
}

__device__ inline void copy_weights(u32 to, const TensorMap &map, Barrier full, i32 channel, i32 tap, i32 filter) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
                 "l"(&map), "r"(channel), "r"(tap), "r"(filter), "r"(full.at)
                 : "memory");
}

// A tile of the result and its part of k.
struct Tile {
    u32 m0, n0, part;
    i32 begin, end;
    // Filters first, so that their pixels stay in L2.
    __device__ Tile(const Conv &p, const Split &split, u32 index) {
        const u32 rest = index / p.tiles[1];
        n0 = index % p.tiles[1] * BN;
        m0 = rest % p.tiles[0] * BM;
        part = rest / p.tiles[0];
        begin = (i32)((u64)split.steps * part / split.splits);
        end = (i32)((u64)split.steps * (part + 1) / split.splits);
    }
};

// Exchanges within a quad: lane q gets element q of each lane, in order.
__device__ inline void transpose_quad(u32 (&x)[4], int lane) {
#pragma unroll
    for (int distance = 1; distance < 4; distance *= 2) {
        const bool high = lane & distance;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (i & distance) continue;
            const u32 got = __shfl_xor_sync(0xffffffffu, high ? x[i] : x[i + distance], distance);
            if (high) x[i] = got;
            else x[i + distance] = got;
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    NAME(T *out, const T *bias, f32 *partial, const __grid_constant__ Conv p, const __grid_constant__ Split split,
         const __grid_constant__ TensorMap pixels, const __grid_constant__ TensorMap weights, const T *, const T *) {
    extern __shared__ __align__(1024) u8 shared[];
    constexpr u32 A_BYTES = BM * BK * 2, B_BYTES = BN * BK * 2;
    const u32 a_first = (shared_address_of(shared) + 1023) / 1024 * 1024, b_first = a_first + STAGES * A_BYTES, barriers = b_first + STAGES * B_BYTES;
    const auto full = [&](u32 stage) { return Barrier{barriers + stage * 16}; };
    const auto empty = [&](u32 stage) { return Barrier{barriers + stage * 16 + 8}; };
    const u32 tiles = p.tiles[0] * p.tiles[1] * split.splits;
    if (threadIdx.x < STAGES) {
        full(threadIdx.x).init(1);
        empty(threadIdx.x).init(2);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    __syncthreads();

    u32 stage = 0, phase = 0;
    const auto next = [&] {
        if (++stage == STAGES) stage = 0, phase ^= 1;
    };
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(LOADER_REGISTERS));
        if (threadIdx.x == 0) {
#pragma unroll 1
            for (u32 index = blockIdx.x; index < tiles; index += gridDim.x) {
                const Tile tile(p, split, index);
                const u32 line = tile.m0 / p.out_width, image = line / p.out_height;
                const i32 y = line - image * p.out_height, x = tile.m0 - line * p.out_width;
                const Pixel pixel = {image, y * p.stride[0] - p.padding[0], x * p.stride[1] - p.padding[1]};
                i32 tap = tile.begin / split.tap_steps, channel = (tile.begin - tap * split.tap_steps) * BK;
                i32 r = tap / p.kernel[1], s = tap - r * p.kernel[1];
#pragma unroll 1
                for (i32 step = tile.begin; step < tile.end; ++step) {
                    empty(stage).wait(phase ^ 1);
                    full(stage).expect(A_BYTES + B_BYTES);
                    copy_pixels(a_first + stage * A_BYTES, pixels, full(stage), channel, pixel, (u16)(s * p.dilation[1]), (u16)(r * p.dilation[0]));
                    copy_weights(b_first + stage * B_BYTES, weights, full(stage), channel, tap, tile.n0);
                    next();
                    channel += BK;
                    if (channel >= (i32)p.channels) {
                        channel = 0;
                        ++tap;
                        if (++s == p.kernel[1]) s = 0, ++r;
                    }
                }
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COMPUTE_REGISTERS));
        const u32 group = threadIdx.x / 128 - 1, thread = threadIdx.x % 128, lane = thread % 32;
        const auto release = [&](u32 stage) {
            if (thread == 0) empty(stage).arrive();
        };
        f32 sum[ROWS][BN / 2];
#pragma unroll 1
        for (u32 index = blockIdx.x; index < tiles; index += gridDim.x) {
            const Tile tile(p, split, index);
            i32 pending = -1;
#pragma unroll 1
            for (i32 step = tile.begin; step < tile.end; ++step) {
                full(stage).wait(phase);
                const u32 a = a_first + stage * A_BYTES + group * (BM / 2) * BK * 2, b = b_first + stage * B_BYTES;
                begin();
#pragma unroll
                for (int k = 0; k < BK / 16; ++k) {
#pragma unroll
                    for (int i = 0; i < ROWS; ++i)
                        multiply(T(), Width<BN>(), sum[i], descriptor(a + i * 64 * BK * 2 + k * 32, 16), descriptor(b + k * 32, 16), k > 0 || step > tile.begin);
                }
                commit();
                wait<1>();
                if (pending >= 0) release(pending);
                pending = stage;
                next();
            }
            wait<0>();
#pragma unroll
            for (int i = 0; i < ROWS; ++i) mark_written(sum[i]);
            if (pending >= 0) release(pending);

#pragma unroll
            for (int i = 0; i < ROWS; ++i) {
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const u32 m = tile.m0 + group * (BM / 2) + i * 64 + thread / 32 * 16 + lane / 4 + half * 8;
                    const bool inside = m < p.pixels;
                    if (partial) {
                        f32 *const to = partial + ((u64)tile.part * p.pixels + m) * p.filters + tile.n0 + lane % 4 * 2;
#pragma unroll
                        for (int n = 0; n < BN / 8; ++n)
                            if (inside && tile.n0 + n * 8 < p.filters) *(float2 *)(to + n * 8) = make_float2(sum[i][n * 4 + half * 2], sum[i][n * 4 + half * 2 + 1]);
                        continue;
                    }
                    T *const to = out + (inside ? result_offset(p, m) : 0) + tile.n0 + lane % 4 * 8;
#pragma unroll
                    for (int n = 0; n < BN / 8; n += 4) {
                        u32 x[4];
#pragma unroll
                        for (int j = 0; j < 4; ++j) {
                            const u32 column = tile.n0 + (n + j) * 8 + lane % 4 * 2;
                            f32 v0 = sum[i][(n + j) * 4 + half * 2], v1 = sum[i][(n + j) * 4 + half * 2 + 1];
                            if (p.has_bias && column < p.filters) {
                                v0 += widen(bias[column * p.bias]);
                                v1 += widen(bias[(column + 1) * p.bias]);
                            }
                            x[j] = pair<T>(v0, v1);
                        }
                        transpose_quad(x, lane);
                        if (inside && tile.n0 + n * 8 + lane % 4 * 8 < p.filters) *(uint4 *)(to + n * 8) = make_uint4(x[0], x[1], x[2], x[3]);
                    }
                }
            }
        }
    }
}

#else
extern "C" __global__ void NAME() {}
#endif
