// Shared by the matrix products: R = f(alpha · A · B + beta · R + bias), batched.

#pragma once

#include "common/types.cuh"

#define MAX_BATCH_DIMS 4

struct Gemm {
    u64 m, n, k, batches;
    // Strides: of A by m and k, of B by k and n, of the result and the bias by m and n.
    u64 a[2], b[2], c[2], bias[2];
    // Batch dimensions, innermost first, and the batch strides of A, B, the result and the bias.
    u64 batch[MAX_BATCH_DIMS], batch_strides[4][MAX_BATCH_DIMS];
    f64 alpha, beta;
    // The activation: none, relu, gelu, gelu_erf, silu, sigmoid, tanh.
    u32 activation, has_bias;
    // Tiles by m and n, for tiled kernels; split-K parts and their length.
    u32 tiles[2], parts, part;
};

// Reloads the kernel's parameters, so that fields used later do not occupy AMD's scalar registers meanwhile. They follow four pointers.
#if defined(__AMDGCN__)
__device__ inline const Gemm &reload_params(const Gemm &) {
    typedef const char __attribute__((address_space(4))) *Bytes;
    Bytes at = (Bytes)__builtin_amdgcn_kernarg_segment_ptr() + 4 * sizeof(void *);
    asm volatile("" : "+s"(at));
    return *(const Gemm *)at;
}
#else
__device__ inline const Gemm &reload_params(const Gemm &p) { return p; }
#endif

// Offset of a batch element. Divisions are slow: none without a batch.
__device__ inline u64 batch_offset(const Gemm &p, int operand, u64 batch) {
    u64 at = 0;
    if (batch == 0) return 0;
#pragma unroll 1
    for (int d = 0; d < MAX_BATCH_DIMS; ++d) {
        at += batch % p.batch[d] * p.batch_strides[operand][d];
        batch /= p.batch[d];
    }
    return at;
}

// The exponential never overflows, and small results keep their relative accuracy.
template <class M> __device__ inline M sigmoid_times(M x, M factor) {
    const M e = exp(-fabs(x));
    return (x < 0 ? factor * e : factor) / (1 + e);
}

template <class M> __device__ inline M activate(M x, u32 activation) {
    switch (activation) {
    case 1: return x < 0 ? (M)0 : x;
    case 2: return sigmoid_times((M)1.5957691216057307117 * x * (1 + (M)0.044715 * x * x), x);
    case 3: return (M)0.5 * x * erfc((M)-0.70710678118654752440 * x);
    case 4: return sigmoid_times(x, x);
    case 5: return sigmoid_times(x, (M)1);
    case 6: return tanh(x);
    default: return x;
    }
}
__device__ inline i32 activate(i32 x, u32 activation) { return activation == 1 && x < 0 ? 0 : x; }

// The epilogue of a sum; `out` and `bias` point to its elements.
template <class R, class Sum> __device__ inline Sum epilogue(const Gemm &p, Sum sum, const R *out, const R *bias) {
    Sum value = (Sum)p.alpha * sum;
    if (p.beta != 0) value += (Sum)p.beta * (Sum)widen(*out);
    if (p.has_bias) value += (Sum)widen(*bias);
    return activate(value, p.activation);
}
