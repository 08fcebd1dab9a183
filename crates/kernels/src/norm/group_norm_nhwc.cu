// Group norm of images whose channels are adjacent in memory. T is the type of the elements, U that of weight and bias.
//
// `stats` computes the moments of each group over a chunk of an image's pixels, `merge` joins those of an image's chunks, and `apply` joins the
// ones that are left and normalizes. A block has a thread for each VECTOR channels (x), and several pixels at a time (y). With SILU the result
// is y / (1 + e^-y).

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME group_norm_nhwc_f32_f32
#define T f32
#define U f32
#define VECTOR 4
#define SILU 0
#endif

#include "common/math.cuh"
#include "common/pack.cuh"
#include "common/pdl.cuh"

// Vectors in flight per thread.
#define LOADS 4
// Threads that join the moments of a group.
#define LANES 8

struct GroupNormParams {
    u64 image_stride, pixel_stride, out_image_stride, out_pixel_stride, weight_stride, bias_stride;
    // Pixels of an image, and of a block of this kernel.
    u32 pixels, chunk;
    u32 groups, per_group;
    // Moments of an image's group, and how many pixels each but the last is of.
    u32 parts, part_pixels;
    f32 epsilon;
    u32 padding;
};

// The mean, and the sum of squares of the differences from it.
struct Moments { f32 mean, squares; };

__device__ inline u32 thread_index() { return threadIdx.y * blockDim.x + threadIdx.x; }

// Calls `take` with the joined moments of each group. Part `i` of a group is `get(group, i)`, of `weight(i)` elements.
template <class Get, class Weight, class Take>
__device__ inline void join(u32 groups, u32 parts, f32 *scratch, Get get, Weight weight, Take take) {
    const u32 threads = blockDim.x * blockDim.y, at_once = threads / LANES;
    const u32 lane = thread_index() % LANES, slot = thread_index() / LANES;
    for (u32 first = 0; first < groups; first += at_once) {
        const u32 group = first + slot;
        const bool active = slot < at_once && group < groups;
        f32 count = 0, sum = 0;
        for (u32 i = lane; active && i < parts; i += LANES) {
            const f32 n = weight(i);
            count += n;
            sum = fmaf(n, get(group, i).mean, sum);
        }
        // Through shared memory: independent of the size of a wave.
        scratch[2 * thread_index()] = count;
        scratch[2 * thread_index() + 1] = sum;
        __syncthreads();
        count = sum = 0;
        for (u32 other = 0; active && other < LANES; ++other) {
            count += scratch[2 * (slot * LANES + other)];
            sum += scratch[2 * (slot * LANES + other) + 1];
        }
        const f32 mean = sum / count;
        f32 squares = 0;
        for (u32 i = lane; active && i < parts; i += LANES) {
            const Moments part = get(group, i);
            const f32 off = part.mean - mean;
            squares += fmaf(weight(i) * off, off, part.squares);
        }
        __syncthreads();
        scratch[thread_index()] = squares;
        __syncthreads();
        if (active && lane == 0) {
            for (u32 other = 1; other < LANES; ++other) squares += scratch[slot * LANES + other];
            const Moments all = {mean, squares};
            take(group, all, count);
        }
        __syncthreads();
    }
}

// The pixels that a part is of, times the channels of a group.
__device__ inline f32 part_weight(const GroupNormParams &p, u32 part) {
    const u32 pixels = part + 1 < p.parts ? p.part_pixels : p.pixels - part * p.part_pixels;
    return (f32)pixels * (f32)p.per_group;
}

extern "C" __global__ void __launch_bounds__(1024)
KERNEL_NAME(NAME, _stats)(const T *x, Moments *moments, GroupNormParams p) {
    extern __shared__ f32 shared[];
    pdl_sync();
    const u32 columns = blockDim.x, rows = blockDim.y, channels = columns * VECTOR, row = threadIdx.y;
    const u32 first = blockIdx.x * p.chunk, end = min(first + p.chunk, p.pixels);
    const T *from = x + blockIdx.y * p.image_stride + threadIdx.x * VECTOR;
    // Differences from the chunk's first pixel: their squares do not cancel.
    f32 base[VECTOR], sum[VECTOR], squares[VECTOR];
    const Pack<T, VECTOR> start = get<T, VECTOR>(from + first * p.pixel_stride);
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) {
        base[i] = widen(start.at[i]);
        sum[i] = squares[i] = 0;
    }
    const auto add = [&](const Pack<T, VECTOR> &pack) {
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) {
            const f32 off = widen(pack.at[i]) - base[i];
            sum[i] += off;
            squares[i] = fmaf(off, off, squares[i]);
        }
    };
    u32 pixel = first + row;
    for (; pixel + (LOADS - 1) * rows < end; pixel += LOADS * rows) {
        Pack<T, VECTOR> packs[LOADS];
#pragma unroll
        for (int k = 0; k < LOADS; ++k) packs[k] = get<T, VECTOR>(from + (pixel + k * rows) * p.pixel_stride);
#pragma unroll
        for (int k = 0; k < LOADS; ++k) add(packs[k]);
    }
    for (; pixel < end; pixel += rows) add(get<T, VECTOR>(from + pixel * p.pixel_stride));
    // The first row adds the sums of the others.
    if (row > 0) {
        f32 *to = shared + 2 * VECTOR * ((row - 1) * columns + threadIdx.x);
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) {
            to[i] = sum[i];
            to[VECTOR + i] = squares[i];
        }
    }
    __syncthreads();
    const f32 count = (f32)(end - first);
    if (row == 0) {
        for (u32 other = 0; other + 1 < rows; ++other) {
            const f32 *of = shared + 2 * VECTOR * (other * columns + threadIdx.x);
#pragma unroll
            for (int i = 0; i < VECTOR; ++i) {
                sum[i] += of[i];
                squares[i] += of[VECTOR + i];
            }
        }
    }
    __syncthreads();
    // Moments of the channels.
    if (row == 0) {
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) {
            const f32 mean = sum[i] / count;
            shared[threadIdx.x * VECTOR + i] = base[i] + mean;
            shared[channels + threadIdx.x * VECTOR + i] = fmaxf(fmaf(-mean, sum[i], squares[i]), 0.0f);
        }
    }
    __syncthreads();
    Moments *to = moments + ((u64)blockIdx.y * gridDim.x + blockIdx.x) * p.groups;
    const auto channel = [&](u32 group, u32 i) {
        const Moments one = {shared[group * p.per_group + i], shared[channels + group * p.per_group + i]};
        return one;
    };
    join(p.groups, p.per_group, shared + 2 * channels, channel, [&](u32) { return count; },
         [&](u32 group, const Moments &all, f32) { to[group] = all; });
}

extern "C" __global__ void __launch_bounds__(1024)
KERNEL_NAME(NAME, _merge)(const Moments *moments, Moments *merged, GroupNormParams p) {
    extern __shared__ f32 shared[];
    pdl_sync();
    const Moments *from = moments + (u64)blockIdx.x * p.parts * p.groups;
    Moments *to = merged + (u64)blockIdx.x * p.groups;
    join(p.groups, p.parts, shared, [&](u32 group, u32 i) { return from[(u64)i * p.groups + group]; },
         [&](u32 i) { return part_weight(p, i); }, [&](u32 group, const Moments &all, f32) { to[group] = all; });
}

extern "C" __global__ void __launch_bounds__(1024)
KERNEL_NAME(NAME, _apply)(const T *x, const Moments *moments, const U *weight, const U *bias, T *out, GroupNormParams p) {
    extern __shared__ f32 shared[];
    pdl_sync();
    f32 *means = shared, *scales = shared + p.groups;
    const Moments *parts = moments + (u64)blockIdx.y * p.parts * p.groups;
    join(p.groups, p.parts, shared + 2 * p.groups, [&](u32 group, u32 i) { return parts[(u64)i * p.groups + group]; },
         [&](u32 i) { return part_weight(p, i); },
         [&](u32 group, const Moments &all, f32 count) {
             means[group] = all.mean;
             scales[group] = 1.0f / sqrtf(all.squares / count + p.epsilon);
         });
    f32 mean[VECTOR], scale[VECTOR], offset[VECTOR];
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) {
        const u32 channel = threadIdx.x * VECTOR + i, group = channel / p.per_group;
        mean[i] = means[group];
        scale[i] = scales[group] * (weight ? widen(weight[channel * p.weight_stride]) : 1.0f);
        offset[i] = bias ? widen(bias[channel * p.bias_stride]) : 0.0f;
    }
    const u32 rows = blockDim.y, first = blockIdx.x * p.chunk, end = min(first + p.chunk, p.pixels);
    const T *from = x + blockIdx.y * p.image_stride + threadIdx.x * VECTOR;
    T *to = out + blockIdx.y * p.out_image_stride + threadIdx.x * VECTOR;
    const auto result = [&](Pack<T, VECTOR> pack) {
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) {
            f32 y = fmaf(widen(pack.at[i]) - mean[i], scale[i], offset[i]);
#if SILU
            y = Functions<T>::sigmoid_times(y, y);
#endif
            pack.at[i] = Narrow<T>::from(y);
        }
        return pack;
    };
    u32 pixel = first + threadIdx.y;
    for (; pixel + (LOADS - 1) * rows < end; pixel += LOADS * rows) {
        Pack<T, VECTOR> packs[LOADS];
#pragma unroll
        for (int k = 0; k < LOADS; ++k) packs[k] = get<T, VECTOR>(from + (pixel + k * rows) * p.pixel_stride);
#pragma unroll
        for (int k = 0; k < LOADS; ++k) put<T, VECTOR>(to + (pixel + k * rows) * p.out_pixel_stride, result(packs[k]));
    }
    for (; pixel < end; pixel += rows) put<T, VECTOR>(to + pixel * p.out_pixel_stride, result(get<T, VECTOR>(from + pixel * p.pixel_stride)));
}
