// What picking a token of logits needs: their order, and what all threads of a block have.

#define WAVES (THREADS / WAVE)
#define LEAST (-__int_as_float(0x7f800000))

// What is no number is never picked.
__device__ inline f32 number(T element) {
    const f32 x = widen(element);
    return x == x ? x : LEAST;
}
// Whole numbers in the order of the floats; equal floats are equal.
__device__ inline u32 key_of(f32 x) {
    const u32 bits = __float_as_uint(x == 0 ? 0.0f : x);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ inline f32 float_of(u32 key) { return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key); }
// e to the power of what x is less than the largest, which may be infinite.
__device__ inline f32 power_of(f32 x, f32 largest) { return x == largest ? 1.0f : exp2f((x - largest) * 1.44269504f); }

// What all threads have, put together by `f`, always in the same order; every thread gets it.
template <class V, class F> __device__ inline V together(V value, V *room, F f) {
#pragma unroll
    for (int apart = WAVE / 2; apart > 0; apart /= 2) value = f(value, __shfl_xor_sync(0xffffffffu, value, apart));
    __syncthreads();
    if (threadIdx.x % WAVE == 0) room[threadIdx.x / WAVE] = value;
    __syncthreads();
    value = room[0];
    for (int w = 1; w < WAVES; ++w) value = f(value, room[w]);
    return value;
}
