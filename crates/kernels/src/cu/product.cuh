// What the products have in common: R = f(alpha · A · B + beta · R + bias), for each of a batch.

#define MOST_BATCHES 4

struct Product {
    u64 m, n, k, batches;
    // Steps between elements: of A by m and k, of B by k and n, of the result and of the bias by m and n.
    u64 a[2], b[2], c[2], bias[2];
    // The batch, the innermost dimension first, and the steps of A, B, the result and the bias.
    u64 batch[MOST_BATCHES], steps[4][MOST_BATCHES];
    f64 alpha, beta;
    // The function: none, relu, gelu, gelu_erf, silu, sigmoid, tanh.
    u32 activation, has_bias;
    // Tiles by m and n, for those who work in tiles; how many parts k is cut into and how long they are, for those who cut it.
    u32 tiles[2], parts, part;
};

// The kernel's own Product, read once more: what is read of it from here on need not wait in AMD's scalar registers. It stands behind
// four pointers.
#if defined(__AMDGCN__)
__device__ inline const Product &afresh(const Product &) {
    typedef const char __attribute__((address_space(4))) *Bytes;
    Bytes at = (Bytes)__builtin_amdgcn_kernarg_segment_ptr() + 4 * sizeof(void *);
    asm volatile("" : "+s"(at));
    return *(const Product *)at;
}
#else
__device__ inline const Product &afresh(const Product &p) { return p; }
#endif

// Where a batch's element begins. Divisions take long: none where there is no batch.
__device__ inline u64 batch_offset(const Product &p, int operand, u64 batch) {
    u64 at = 0;
    if (batch == 0) return 0;
#pragma unroll 1
    for (int d = 0; d < MOST_BATCHES; ++d) {
        at += batch % p.batch[d] * p.steps[operand][d];
        batch /= p.batch[d];
    }
    return at;
}

// The exponential never overflows, and is as exact where the result is small as elsewhere.
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

// What becomes of a sum; `out` is its place, `bias` the bias's.
template <class R, class Sum> __device__ inline Sum finish(const Product &p, Sum sum, const R *out, const R *bias) {
    Sum value = (Sum)p.alpha * sum;
    if (p.beta != 0) value += (Sum)p.beta * (Sum)widen(*out);
    if (p.has_bias) value += (Sum)widen(*bias);
    return activate(value, p.activation);
}
