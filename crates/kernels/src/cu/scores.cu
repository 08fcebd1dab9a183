// Attention in its parts, one result for each thread, for any layout: slow, and short enough to see that it is right.

struct Scores {
    i64 a[4], b[4], mask[4], out[4];
    // Of the result, outermost first; then what is summed over, and the heads that share one of b's.
    i64 shape[4], sum, group;
    f64 scale;
};
typedef Traits<T>::Math Math;

extern "C" __global__ void NAME(const T *a, const T *b, const U *mask, T *out, u64 n, Scores s) {
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (u64)gridDim.x * blockDim.x) {
        u64 rest = i;
        i64 at[4];
        for (int d = 3; d >= 0; --d) {
            at[d] = rest % s.shape[d];
            rest /= s.shape[d];
        }
        Math total = 0;
#if defined(OP_scores)
        // (sequence, head, query, key) of queries (sequence, token, head, element) and keys alike.
        const T *x = a + at[0] * s.a[0] + at[2] * s.a[1] + at[1] * s.a[2];
        const T *y = b + at[0] * s.b[0] + at[3] * s.b[1] + at[1] / s.group * s.b[2];
        for (i64 e = 0; e < s.sum; ++e) total = fma((Math)widen(x[e * s.a[3]]), (Math)widen(y[e * s.b[3]]), total);
        total *= (Math)s.scale;
        if (mask) total += (Math)widen(mask[at[0] * s.mask[0] + at[1] * s.mask[1] + at[2] * s.mask[2] + at[3] * s.mask[3]]);
#else
        // (sequence, token, head, element) of weights (sequence, head, query, key) and values (sequence, token, head, element).
        const T *x = a + at[0] * s.a[0] + at[2] * s.a[1] + at[1] * s.a[2];
        const T *y = b + at[0] * s.b[0] + at[2] / s.group * s.b[2] + at[3] * s.b[3];
        for (i64 e = 0; e < s.sum; ++e) total = fma((Math)widen(x[e * s.a[3]]), (Math)widen(y[e * s.b[1]]), total);
#endif
        out[at[0] * s.out[0] + at[1] * s.out[1] + at[2] * s.out[2] + at[3] * s.out[3]] = Narrow<T>::from(total);
    }
}
