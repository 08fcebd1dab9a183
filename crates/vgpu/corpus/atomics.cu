// Atomics on global and shared memory: thread i works on cell i % cells.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define GLOBAL(name, T, call)                                                                                                      \
    extern "C" __global__ void atomic_##name(T *cells, const T *values, int n, int count) {                                        \
        int i = blockIdx.x * blockDim.x + threadIdx.x;                                                                             \
        if (i < n) {                                                                                                               \
            T *cell = &cells[i % count], value = values[i];                                                                        \
            call;                                                                                                                  \
        }                                                                                                                          \
    }
// One block: cells come into shared memory, are worked on, and go back.
#define SHARED(name, T, call)                                                                                                      \
    extern "C" __global__ void shared_##name(T *cells, const T *values, int n, int count) {                                        \
        __shared__ T part[32];                                                                                                     \
        if (threadIdx.x < count) part[threadIdx.x] = cells[threadIdx.x];                                                           \
        __syncthreads();                                                                                                           \
        for (int i = threadIdx.x; i < n; i += blockDim.x) {                                                                        \
            T *cell = &part[i % count], value = values[i];                                                                         \
            call;                                                                                                                  \
        }                                                                                                                          \
        __syncthreads();                                                                                                           \
        if (threadIdx.x < count) cells[threadIdx.x] = part[threadIdx.x];                                                           \
    }
#define BOTH(name, T, call) GLOBAL(name, T, call) SHARED(name, T, call)
#define COMMON(type, T)                                                                                                            \
    BOTH(min_##type, T, atomicMin(cell, value))                                                                                    \
    BOTH(max_##type, T, atomicMax(cell, value))                                                                                    \
    BOTH(and_##type, T, atomicAnd(cell, value))                                                                                    \
    BOTH(or_##type, T, atomicOr(cell, value))                                                                                      \
    BOTH(xor_##type, T, atomicXor(cell, value))
COMMON(i32, int)
COMMON(u32, unsigned int)
COMMON(i64, long long)
COMMON(u64, unsigned long long)
BOTH(add_i32, int, atomicAdd(cell, value))
BOTH(add_u32, unsigned int, atomicAdd(cell, value))
BOTH(add_u64, unsigned long long, atomicAdd(cell, value))
BOTH(add_f32, float, atomicAdd(cell, value))
BOTH(add_f64, double, atomicAdd(cell, value))
BOTH(sub_i32, int, atomicSub(cell, value))
BOTH(sub_u32, unsigned int, atomicSub(cell, value))
BOTH(inc_u32, unsigned int, atomicInc(cell, 12u))
BOTH(dec_u32, unsigned int, atomicDec(cell, 12u))
GLOBAL(add_f16, __half, atomicAdd(cell, value))
GLOBAL(add_f16x2, __half2, atomicAdd(cell, value))
GLOBAL(add_bf16, __nv_bfloat16, atomicAdd(cell, value))

template <class T> static __device__ void add_by_cas(T *cell, T value) {
    T seen = *cell, found;
    while ((found = atomicCAS(cell, seen, (T)(seen + value))) != seen) seen = found;
}
BOTH(cas_i32, int, add_by_cas(cell, value))
BOTH(cas_u64, unsigned long long, add_by_cas(cell, value))

// Every old value is seen once: cells, then one old value per thread.
#define EXCHANGE(type, T)                                                                                                          \
    extern "C" __global__ void atomic_exch_##type(T *cells, const T *values, int n, int count) {                                   \
        int i = blockIdx.x * blockDim.x + threadIdx.x;                                                                             \
        if (i < n) cells[count + i] = atomicExch(&cells[i % count], values[i]);                                                    \
    }
EXCHANGE(i32, int)
EXCHANGE(u64, unsigned long long)
EXCHANGE(f32, float)

// Tickets: each thread gets a number of its own.
extern "C" __global__ void atomic_tickets(unsigned int *counter, unsigned int *ticket, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) ticket[i] = atomicAdd(counter, 1u);
}
// The largest float by compare-and-swap of its bits.
extern "C" __global__ void atomic_max_f32(float *most, const float *in, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        int *bits = (int *)most, seen = *(volatile int *)bits;
        while (__int_as_float(seen) < in[i]) {
            int found = atomicCAS(bits, seen, __float_as_int(in[i]));
            if (found == seen) break;
            seen = found;
        }
    }
}
// Elements that pass, packed in any order; the count in out[0].
extern "C" __global__ void atomic_compact(const int *in, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && in[i] % 3 == 0) out[1 + atomicAdd(&out[0], 1)] = in[i];
}
// Words of 64 bits with equal halves, of each lane its own, while another block reads them: never halves of two.
extern "C" __global__ void whole_words(unsigned long long *cells, unsigned int *torn, int n) {
    volatile unsigned long long *cell = cells + threadIdx.x;
    unsigned int count = 0;
    for (int i = 1; i <= n; i++) {
        if (blockIdx.x % 2 == 0) {
            *cell = (unsigned long long)i << 32 | i;
        } else {
            const unsigned long long seen = *cell;
            count += (unsigned int)seen != (unsigned int)(seen >> 32);
        }
    }
    if (count) atomicAdd(torn, count);
}
