// Scatter without an order: of equal indices any element is set, or all are added by atomics as they come.
//
// T is the element (an unsigned integer of its size where it is only copied), U the index. Out-of-range indices write nothing.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME scatter_add_unordered_f32_i64
#define OP_scatter_add_unordered
#define T f32
#define U i64
#define UNROLL 4
#endif

#include "common/dims.cuh"
#include "common/pack.cuh"

// The target: size and stride of its indexed dimension.
struct Axis {
    u64 size, stride;
};

#if defined(OP_scatter_unordered)

template <int WIDTH> __device__ inline void write(T *to, const Pack<T, WIDTH> &pack) { put<T, WIDTH>(to, pack); }

#else

// Types with an atomic addition. Integers wrap.
__device__ inline void add(f32 *to, f32 x) { atomicAdd(to, x); }
__device__ inline void add(f64 *to, f64 x) { atomicAdd(to, x); }
__device__ inline void add(u32 *to, u32 x) { atomicAdd(to, x); }
__device__ inline void add(i32 *to, i32 x) { atomicAdd((u32 *)to, (u32)x); }
__device__ inline void add(i64 *to, i64 x) { atomicAdd((u64 *)to, (u64)x); }
// Others: exchanges the aligned word around the element until nobody else has changed it. The launcher sees to it that the word is in the
// result's allocation.
template <class E> __device__ inline void add(E *to, E x) {
#if !defined(__AMDGCN__) && __CUDA_ARCH__ >= 700
    if constexpr (!Traits<E>::INTEGER && sizeof(E) == 2) {
        if constexpr (!Traits<E>::IS_BF16) {
            asm volatile("red.relaxed.gpu.global.add.noftz.f16 [%0], %1;" ::"l"(to), "h"(x.bits) : "memory");
            return;
        }
#if __CUDA_ARCH__ >= 900
        asm volatile("red.relaxed.gpu.global.add.noftz.bf16 [%0], %1;" ::"l"(to), "h"(x.bits) : "memory");
        return;
#endif
    }
#endif
    typedef typename Access<sizeof(E)>::Type Raw;
    union Bits {
        Raw raw;
        E element;
        __device__ Bits() {}
    } bits;
    u32 *const word = (u32 *)((u64)to & ~3ull);
    const u32 shift = ((u64)to & 3) * 8, mask = (u32)(Raw)~0u << shift;
    u32 old = *word, seen;
    do {
        seen = old;
        bits.raw = (Raw)(seen >> shift);
        bits.element = Narrow<E>::from(widen(bits.element) + widen(x));
        old = atomicCAS(word, seen, (seen & ~mask) | (u32)bits.raw << shift);
    } while (old != seen);
}

template <int WIDTH> __device__ inline void write(T *to, const Pack<T, WIDTH> &pack) {
#if !defined(__AMDGCN__) && __CUDA_ARCH__ >= 900
    if constexpr (sizeof(T) == 4 && !Traits<T>::INTEGER && WIDTH == 4) {
        asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"((f32)pack.at[0]), "f"((f32)pack.at[1]),
                     "f"((f32)pack.at[2]), "f"((f32)pack.at[3])
                     : "memory");
        return;
    }
#endif
#pragma unroll
    for (int e = 0; e < WIDTH; ++e) add(to + e, pack.at[e]);
}

#endif

// Operands: the input, the indices, the result without its indexed dimension.
template <class Index, int WIDTH>
__device__ inline void scatter(T *out, const U *indices, const T *x, const Axis &axis, const Dims &dims) {
    const Index n = (Index)dims.n, tile = (Index)blockDim.x * UNROLL;
    for (Index first = blockIdx.x * tile; first < n; first += gridDim.x * tile) {
        u64 to[UNROLL], position[UNROLL];
        Pack<T, WIDTH> packs[UNROLL];
        // All loads of a thread are in flight at once.
#pragma unroll
        for (int k = 0; k < UNROLL; ++k) {
            const Index i = first + k * blockDim.x + threadIdx.x;
            position[k] = axis.size;
            if (i >= n) continue;
            Index at[3] = {0, 0, 0};
            locate<Index>(i, dims, at, 3);
            packs[k] = get<T, WIDTH>(x + at[0]);
            position[k] = (u64)indices[at[1]];
            to[k] = at[2];
        }
#pragma unroll
        for (int k = 0; k < UNROLL; ++k) {
            if (position[k] < axis.size) write<WIDTH>(out + to[k] + position[k] * axis.stride, packs[k]);
        }
    }
}

// The result does not overlap the inputs, so later loads may precede earlier stores.
#define SCATTER T *out, const U *__restrict__ indices, const T *__restrict__ x, Axis axis, Dims dims
extern "C" __global__ void KERNEL_NAME(NAME, _packs)(SCATTER) { scatter<u32, 16 / sizeof(T)>(out, indices, x, axis, dims); }
extern "C" __global__ void KERNEL_NAME(NAME, _scalar)(SCATTER) { scatter<u32, 1>(out, indices, x, axis, dims); }
extern "C" __global__ void KERNEL_NAME(NAME, _scalar64)(SCATTER) { scatter<u64, 1>(out, indices, x, axis, dims); }
