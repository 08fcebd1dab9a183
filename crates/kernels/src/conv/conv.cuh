// Shared by the convolutions: an implicit matrix product of pixels (rows), filters (columns) and taps times channels (k, channels
// innermost). TRANSPOSED gathers what the transposed convolution scatters, so that every result is written once.

#pragma once

#include "matmul/gemm.cuh"

struct Conv {
    // Strides: input and result by image, channel, row and column; weights by filter, channel, row and column of the kernel.
    u64 x[4], out[4], w[4];
    // Strides of the weights and of the bias by group and by filter; those of x and out follow from their channels.
    u64 w_group, bias;
    // Channels and filters of a group.
    u32 channels, filters, groups, k, pixels;
    i32 height, width, out_height, out_width, kernel[2], stride[2], padding[2], dilation[2];
    u32 activation, has_bias, tiles[2];
};

// Where the taps of a pixel of the result begin.
struct Pixel {
    i64 image;
    i32 y, x;
};

__device__ inline Pixel pixel_of(const Conv &p, u32 m) {
    Pixel pixel;
    if (m >= p.pixels) {
        // Every tap is outside.
        pixel.image = 0;
        pixel.y = pixel.x = -(1 << 30);
        return pixel;
    }
    const u32 row = m / p.out_width, n = row / p.out_height;
    const i32 y = row - n * p.out_height, x = m - row * p.out_width;
    pixel.image = (i64)(n * p.x[0]);
#if TRANSPOSED
    pixel.y = y + p.padding[0];
    pixel.x = x + p.padding[1];
#else
    pixel.y = y * p.stride[0] - p.padding[0];
    pixel.x = x * p.stride[1] - p.padding[1];
#endif
    return pixel;
}

// Position of a tap along one dimension of the input; false if outside.
__device__ inline bool locate_tap(i32 start, i32 tap, i32 size, i32 stride, i32 dilation, i32 &at) {
#if TRANSPOSED
    at = start - tap * dilation;
    if (at < 0) return false;
    const i32 whole = at / stride;
    if (whole * stride != at) return false;
    at = whole;
    return at < size;
#else
    at = start + tap * dilation;
    return at >= 0 && at < size;
#endif
}

// Offset of a tap of a pixel in the input, for channel 0; negative if outside.
__device__ inline i64 tap_offset(const Conv &p, const Pixel &pixel, i32 r, i32 s) {
    i32 y, x;
    if (!locate_tap(pixel.y, r, p.height, p.stride[0], p.dilation[0], y)) return -1;
    if (!locate_tap(pixel.x, s, p.width, p.stride[1], p.dilation[1], x)) return -1;
    return pixel.image + (i64)(y * p.x[2] + x * p.x[3]);
}

// An input element of the implicit matrix; `x` points to the group's first channel.
template <class E> __device__ inline E input_element(const Conv &p, const E *x, const Pixel &pixel, u32 k) {
    const u32 tap = k / p.channels, c = k - tap * p.channels, r = tap / p.kernel[1];
    const i64 at = tap_offset(p, pixel, r, tap - r * p.kernel[1]);
    E element = E();
    if (at >= 0) element = x[at + (i64)(c * p.x[1])];
    return element;
}

// Offset of a pixel of the result.
__device__ inline u64 result_offset(const Conv &p, u32 m) {
    const u32 row = m / p.out_width, n = row / p.out_height;
    return n * p.out[0] + (row - n * p.out_height) * p.out[2] + (m - row * p.out_width) * p.out[3];
}

__device__ inline f32 finish(const Conv &p, f32 sum, f32 bias) { return activate(sum + bias, p.activation); }
