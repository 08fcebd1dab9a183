// What HIP's own headers lack of CUDA, under names of ours.
//
// Versions of HIP differ in what they have: each function that some version has is defined here under a name of ours, and
// beside_hip_names.h makes CUDA's name a macro for it.
#pragma once

#if defined(__AMDGCN_WAVEFRONT_SIZE)
#define WARPWAVE_WAVE_SIZE __AMDGCN_WAVEFRONT_SIZE
#elif defined(__GFX10__) || defined(__GFX11__) || defined(__GFX12__)
#define WARPWAVE_WAVE_SIZE 32
#else
#define WARPWAVE_WAVE_SIZE 64
#endif
// What guards on __CUDA_ARCH__ see, with the name that the translation gives it.
#ifndef WARPWAVE_CUDA_ARCH
#define WARPWAVE_CUDA_ARCH 900
#endif

#define __WW_DEVICE static __device__ inline __attribute__((always_inline))
#define __WW_BOTH static __host__ __device__ inline __attribute__((always_inline))
#define __WW_OVERRIDABLE template <int __warpwave = 0> __device__ inline __attribute__((always_inline))
#ifndef __grid_constant__
#define __grid_constant__
#endif

#if WARPWAVE_WAVE_SIZE == 64
typedef unsigned long long __warpwave_mask;
#else
typedef unsigned int __warpwave_mask;
#endif

namespace __warpwave {
__WW_DEVICE int lane() { return (int)__lane_id(); }
__WW_DEVICE __warpwave_mask ballot(bool vote) { return (__warpwave_mask)__ballot(vote); }
template <class M> __WW_DEVICE __warpwave_mask whole_mask(M given) {
    return sizeof(M) == 4 && (unsigned int)given == ~0u ? ~(__warpwave_mask)0 : (__warpwave_mask)given;
}
template <class T> __WW_DEVICE T from_lane(T value, int from) {
    const int words = (sizeof(T) + 3) / 4;
    int buffer[words] = {};
    __builtin_memcpy(buffer, &value, sizeof(T));
#pragma unroll
    for (int i = 0; i < words; i++) buffer[i] = __builtin_amdgcn_ds_bpermute(from << 2, buffer[i]);
    T result;
    __builtin_memcpy(&result, buffer, sizeof(T));
    return result;
}
template <class T> __WW_DEVICE T shuffle(T value, int source, int width) {
    return from_lane(value, (lane() & ~(width - 1)) | (source & (width - 1)));
}
template <class T> __WW_DEVICE T shuffle_up(T value, unsigned int delta, int width) {
    int self = lane(), source = self - (int)delta;
    return from_lane(value, source < (self & ~(width - 1)) ? self : source);
}
template <class T> __WW_DEVICE T shuffle_down(T value, unsigned int delta, int width) {
    int self = lane();
    return from_lane(value, (self & (width - 1)) + (int)delta >= width ? self : self + (int)delta);
}
template <class T> __WW_DEVICE T shuffle_xor(T value, int lane_mask, int width) {
    int self = lane(), source = self ^ lane_mask;
    return from_lane(value, source >= ((self + width) & ~(width - 1)) ? self : source);
}
template <class M, class T> __WW_DEVICE T shfl_sync(M, T value, int source, int width = WARPWAVE_WAVE_SIZE) {
    return shuffle(value, source, width);
}
template <class M, class T> __WW_DEVICE T shfl_up_sync(M, T value, unsigned int delta, int width = WARPWAVE_WAVE_SIZE) {
    return shuffle_up(value, delta, width);
}
template <class M, class T> __WW_DEVICE T shfl_down_sync(M, T value, unsigned int delta, int width = WARPWAVE_WAVE_SIZE) {
    return shuffle_down(value, delta, width);
}
template <class M, class T> __WW_DEVICE T shfl_xor_sync(M, T value, int lane_mask, int width = WARPWAVE_WAVE_SIZE) {
    return shuffle_xor(value, lane_mask, width);
}
template <class M> __WW_DEVICE __warpwave_mask ballot_sync(M given, int vote) { return ballot(vote != 0) & whole_mask(given); }
template <class M> __WW_DEVICE int any_sync(M given, int vote) { return ballot_sync(given, vote) != 0; }
template <class M> __WW_DEVICE int all_sync(M given, int vote) { return ballot_sync(given, vote == 0) == 0; }
template <class M> __WW_DEVICE int uni_sync(M given, int vote) { return all_sync(given, vote) || !any_sync(given, vote); }
__WW_DEVICE __warpwave_mask activemask() { return ballot(true); }
__WW_DEVICE void syncwarp(__warpwave_mask = ~(__warpwave_mask)0) {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
template <class M, class T> __WW_DEVICE __warpwave_mask match_any_sync(M mask, T value) {
    __warpwave_mask mine = 0, rest = ballot(true) & whole_mask(mask);
    while (rest) {
        __warpwave_mask same = ballot(from_lane(value, __builtin_ctzll(rest)) == value) & rest;
        if (same >> lane() & 1) mine = same;
        rest &= ~same;
    }
    return mine;
}
template <class M, class T> __WW_DEVICE __warpwave_mask match_all_sync(M mask, T value, int *all) {
    __warpwave_mask running = ballot(true) & whole_mask(mask);
    __warpwave_mask same = ballot(from_lane(value, __builtin_ctzll(running)) == value) & running;
    *all = same == running;
    return same == running ? running : 0;
}
#define __WW_REDUCE(name, expression)                                                                                              \
    template <class M, class T> __WW_DEVICE T name(M mask, T value) {                                                              \
        __warpwave_mask rest = ballot(true) & whole_mask(mask);                                                                    \
        T a = from_lane(value, __builtin_ctzll(rest));                                                                             \
        for (rest &= rest - 1; rest; rest &= rest - 1) {                                                                           \
            T b = from_lane(value, __builtin_ctzll(rest));                                                                         \
            a = expression;                                                                                                        \
        }                                                                                                                          \
        return a;                                                                                                                  \
    }
__WW_REDUCE(reduce_add_sync, (T)((unsigned int)a + (unsigned int)b))
__WW_REDUCE(reduce_min_sync, b < a ? b : a)
__WW_REDUCE(reduce_max_sync, a < b ? b : a)
__WW_REDUCE(reduce_and_sync, a &b)
__WW_REDUCE(reduce_or_sync, a | b)
__WW_REDUCE(reduce_xor_sync, a ^ b)
#undef __WW_REDUCE

__WW_DEVICE int dp4a(int a, int b, int c) {
    for (int i = 0; i < 4; i++) c += (int)(signed char)(a >> (8 * i)) * (int)(signed char)(b >> (8 * i));
    return c;
}
__WW_DEVICE unsigned int dp4a(unsigned int a, unsigned int b, unsigned int c) {
    for (int i = 0; i < 4; i++) c += ((a >> (8 * i)) & 0xffu) * ((b >> (8 * i)) & 0xffu);
    return c;
}
__WW_DEVICE int dp2a_lo(int a, int b, int c) { return c + (short)a * (signed char)b + (a >> 16) * (signed char)(b >> 8); }
__WW_DEVICE int dp2a_hi(int a, int b, int c) { return c + (short)a * (signed char)(b >> 16) + (a >> 16) * (b >> 24); }
__WW_DEVICE unsigned int dp2a_lo(unsigned int a, unsigned int b, unsigned int c) {
    return c + (a & 0xffffu) * (b & 0xffu) + (a >> 16) * ((b >> 8) & 0xffu);
}
__WW_DEVICE unsigned int dp2a_hi(unsigned int a, unsigned int b, unsigned int c) {
    return c + (a & 0xffffu) * ((b >> 16) & 0xffu) + (a >> 16) * (b >> 24);
}
template <class T> __WW_DEVICE T load(const T *pointer) { return *pointer; }
template <class T> __WW_DEVICE void store(T *pointer, T value) { *pointer = value; }
template <class T> __WW_DEVICE T load_volatile(const T *pointer) { return *(const volatile T *)pointer; }
__WW_DEVICE void nanosleep(unsigned int nanoseconds) {
    for (unsigned int slept = 0; slept < nanoseconds; slept += 40) __builtin_amdgcn_s_sleep(1);
}
__WW_DEVICE size_t to_shared(const void *pointer) { return (size_t)pointer & 0xffffffffu; }
__WW_DEVICE void *from_shared(size_t address) { return (void *)(__attribute__((address_space(3))) char *)(unsigned int)address; }
__WW_DEVICE bool is_shared(const void *pointer) { return __builtin_amdgcn_is_shared((const __attribute__((address_space(0))) void *)pointer); }
__WW_DEVICE bool is_local(const void *pointer) { return __builtin_amdgcn_is_private((const __attribute__((address_space(0))) void *)pointer); }
__WW_DEVICE bool is_global(const void *pointer) { return !is_shared(pointer) && !is_local(pointer); }
__WW_DEVICE size_t to_global(const void *pointer) { return (size_t)pointer; }
__WW_DEVICE void *from_global(size_t address) { return (void *)address; }
} // namespace __warpwave

// Templates give way to functions of the same name in newer versions.
template <int __warpwave_ = 0>
__device__ inline unsigned short atomicCAS(unsigned short *address, unsigned short expected, unsigned short value) {
    size_t place = (size_t)address;
    unsigned int *word = (unsigned int *)(place & ~(size_t)3);
    unsigned int shift = (unsigned int)(place & 2) * 8;
    unsigned int seen = *(volatile unsigned int *)word;
    while ((unsigned short)(seen >> shift) == expected) {
        unsigned int found = atomicCAS(word, seen, (seen & ~(0xffffu << shift)) | ((unsigned int)value << shift));
        if (found == seen) return expected;
        seen = found;
    }
    return (unsigned short)(seen >> shift);
}
namespace __warpwave {
template <class Bits, class Change> __WW_DEVICE Bits atomic_update(Bits *address, Change change) {
    Bits seen = *(volatile Bits *)address;
    for (;;) {
        Bits found = atomicCAS(address, seen, change(seen));
        if (found == seen) return seen;
        seen = found;
    }
}
} // namespace __warpwave
template <int __warpwave_ = 0> __device__ inline unsigned int atomicInc_system(unsigned int *address, unsigned int value) {
    unsigned int seen = *(volatile unsigned int *)address, found;
    for (; (found = atomicCAS_system(address, seen, seen >= value ? 0u : seen + 1)) != seen; seen = found) {}
    return found;
}
template <int __warpwave_ = 0> __device__ inline unsigned int atomicDec_system(unsigned int *address, unsigned int value) {
    unsigned int seen = *(volatile unsigned int *)address, found;
    for (; (found = atomicCAS_system(address, seen, seen == 0 || seen > value ? value : seen - 1)) != seen; seen = found) {}
    return found;
}
template <int __warpwave_ = 0> __device__ inline __half __hmax(__half a, __half b) {
    return __hisnan(a) ? b : __hisnan(b) ? a : __hgt(a, b) ? a : b;
}
template <int __warpwave_ = 0> __device__ inline __half __hmin(__half a, __half b) {
    return __hisnan(a) ? b : __hisnan(b) ? a : __hlt(a, b) ? a : b;
}
template <int __warpwave_ = 0> __device__ inline __half __hmax_nan(__half a, __half b) {
    return __hisnan(a) ? a : __hisnan(b) ? b : __hgt(a, b) ? a : b;
}
template <int __warpwave_ = 0> __device__ inline __half __hmin_nan(__half a, __half b) {
    return __hisnan(a) ? a : __hisnan(b) ? b : __hlt(a, b) ? a : b;
}
template <int __warpwave_ = 0> __device__ inline long long atomicMax(long long *address, long long value) {
    return __hip_atomic_fetch_max(address, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <int __warpwave_ = 0> __device__ inline long long atomicMin(long long *address, long long value) {
    return __hip_atomic_fetch_min(address, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <int __warpwave_ = 0> __device__ inline __half atomicAdd(__half *address, __half value) {
    return __builtin_bit_cast(__half, __warpwave::atomic_update((unsigned short *)address, [=](unsigned short old) {
        return __builtin_bit_cast(unsigned short, __hadd(__builtin_bit_cast(__half, old), value));
    }));
}
template <int __warpwave_ = 0> __device__ inline __half2 atomicAdd(__half2 *address, __half2 value) {
    return __builtin_bit_cast(__half2, __warpwave::atomic_update((unsigned int *)address, [=](unsigned int old) {
        return __builtin_bit_cast(unsigned int, __hadd2(__builtin_bit_cast(__half2, old), value));
    }));
}
