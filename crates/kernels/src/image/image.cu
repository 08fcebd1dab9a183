// Pooling, resampling and im2col, one thread per result; OP_<name> selects the operation.
//
// T is the element type, of operations that only copy an unsigned integer of its size.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME avg_pool2d_f32
#define OP_avg_pool2d
#define T f32
#endif

#include "common/dims.cuh"

// Strides and size of the input, and how a window moves over it.
struct Window {
    u64 x[4];
    i32 height, width, kernel[2], stride[2], padding[2], dilation[2];
    // Sizes of the result, for upsampling.
    i32 out_height, out_width;
    u32 channels_last, include_padding, align_corners, unused;
};

// An element of the result. For im2col the channel is that of the columns.
struct Place { u32 image, channel; i32 y, x; };

__device__ inline const T *at(const Window &p, const T *plane, i32 y, i32 x) { return plane + (u32)y * p.x[2] + (u32)x * p.x[3]; }

#if defined(OP_avg_pool2d) || defined(OP_max_pool2d)

typedef Traits<T>::Math Math;
__device__ inline T result(const Window &p, const T *x, const Place &to) {
    const T *const plane = x + to.channel * p.x[1];
    i32 count = 0;
    Math sum = 0;
#pragma unroll 1
    for (i32 r = 0; r < p.kernel[0]; ++r) {
        const i32 y = to.y * p.stride[0] - p.padding[0] + r;
        if (y < 0 || y >= p.height) continue;
#pragma unroll 1
        for (i32 s = 0; s < p.kernel[1]; ++s) {
            const i32 column = to.x * p.stride[1] - p.padding[1] + s;
            if (column < 0 || column >= p.width) continue;
            const Math value = widen(*at(p, plane, y, column));
#if defined(OP_avg_pool2d)
            sum += value;
#else
            sum = count == 0 || value != value || value > sum ? value : sum;
#endif
            ++count;
        }
    }
#if defined(OP_avg_pool2d)
    sum /= (Math)(p.include_padding ? p.kernel[0] * p.kernel[1] : count);
#endif
    return Narrow<T>::from(sum);
}

#elif defined(OP_upsample_nearest2d)

__device__ inline T result(const Window &p, const T *x, const Place &to) {
    const i32 y = (i32)((i64)to.y * p.height / p.out_height), column = (i32)((i64)to.x * p.width / p.out_width);
    return *at(p, x + to.channel * p.x[1], y, column);
}

#elif defined(OP_upsample_bilinear2d)

typedef Traits<T>::Math Math;
// The position that a result lies at, as a fraction of integers: its floor, the next position, and the weight of that.
struct Between {
    i32 low, high;
    Math weight;

    __device__ Between(i32 to, i32 size, i32 out, bool align_corners) {
        i64 numerator = align_corners ? (i64)to * (size - 1) : (2 * (i64)to + 1) * size - out;
        const i64 denominator = align_corners ? (out > 1 ? out - 1 : 1) : 2 * (i64)out;
        if (numerator < 0) numerator = 0;
        low = (i32)(numerator / denominator);
        high = low + 1 < size ? low + 1 : low;
        weight = (Math)(numerator - low * denominator) / (Math)denominator;
    }
};
__device__ inline T result(const Window &p, const T *x, const Place &to) {
    const T *const plane = x + to.channel * p.x[1];
    const Between y(to.y, p.height, p.out_height, p.align_corners), column(to.x, p.width, p.out_width, p.align_corners);
    const Math a = widen(*at(p, plane, y.low, column.low)), b = widen(*at(p, plane, y.low, column.high));
    const Math c = widen(*at(p, plane, y.high, column.low)), d = widen(*at(p, plane, y.high, column.high));
    const Math above = a + column.weight * (b - a), below = c + column.weight * (d - c);
    return Narrow<T>::from(above + y.weight * (below - above));
}

#elif defined(OP_im2col)

__device__ inline T result(const Window &p, const T *x, const Place &to) {
    const u32 taps = p.kernel[0] * p.kernel[1], channel = to.channel / taps, tap = to.channel - channel * taps, r = tap / p.kernel[1];
    const i32 y = to.y * p.stride[0] - p.padding[0] + (i32)r * p.dilation[0];
    const i32 column = to.x * p.stride[1] - p.padding[1] + (i32)(tap - r * p.kernel[1]) * p.dilation[1];
    const bool inside = y >= 0 && y < p.height && column >= 0 && column < p.width;
    return inside ? *at(p, x + channel * p.x[1], y, column) : (T)0;
}

#elif defined(OP_col2im)

typedef Traits<T>::Math Math;
// The position of a window whose tap lies at `to`, if there is one.
__device__ inline bool window_of(i32 to, i32 tap, i32 stride, i32 size, i32 &at) {
    const i32 start = to - tap;
    at = start / stride;
    return start >= 0 && at * stride == start && at < size;
}
__device__ inline T result(const Window &p, const T *x, const Place &to) {
    Math sum = 0;
#pragma unroll 1
    for (i32 r = 0; r < p.kernel[0]; ++r) {
        i32 y, column;
        if (!window_of(to.y + p.padding[0], r * p.dilation[0], p.stride[0], p.height, y)) continue;
#pragma unroll 1
        for (i32 s = 0; s < p.kernel[1]; ++s) {
            if (!window_of(to.x + p.padding[1], s * p.dilation[1], p.stride[1], p.width, column)) continue;
            sum += widen(*at(p, x + ((to.channel * p.kernel[0] + r) * p.kernel[1] + s) * p.x[1], y, column));
        }
    }
    return Narrow<T>::from(sum);
}

#endif

// `dims` are the result's: width, height, channels, images, or with channels first.
extern "C" __global__ void __launch_bounds__(256) NAME(T *out, const T *__restrict__ x, const __grid_constant__ Window p, const __grid_constant__ Dims dims) {
    const u32 n = (u32)dims.n, step = gridDim.x * blockDim.x;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        const u32 first = divide<u32>(i, dims, 0), second = divide<u32>(first, dims, 1), third = divide<u32>(second, dims, 2);
        const u32 a = i - first * (u32)dims.shape[0], b = first - second * (u32)dims.shape[1], c = second - third * (u32)dims.shape[2];
        Place to;
        to.image = third;
        if (p.channels_last) {
            to.channel = a, to.x = b, to.y = c;
        } else {
            to.x = a, to.y = b, to.channel = c;
        }
        const u64 offset = a * dims.strides[0][0] + b * dims.strides[0][1] + c * dims.strides[0][2] + third * dims.strides[0][3];
        out[offset] = result(p, x + to.image * p.x[0], to);
    }
}
