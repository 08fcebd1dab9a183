// What hipRTC's own headers lack of CUDA.
//
// Versions of HIP differ in what they have. Each function is defined under a name of ours and the CUDA name made a macro for it,
// which holds whether HIP has that name or not. Where a wave has 64 lanes, votes return 64 bits, and the mask 0xffffffff means all.
#pragma once

#ifndef __grid_constant__
#define __grid_constant__
#endif

#define __WW_RTC static __device__ inline __attribute__((always_inline))

namespace __warpwave {
#if WARPWAVE_WAVE_SIZE == 64
typedef unsigned long long mask;
#else
typedef unsigned int mask;
#endif
__WW_RTC mask ballot(bool vote) { return (mask)__ballot(vote); }
template <class M> __WW_RTC mask whole_mask(M given) {
    return sizeof(M) == 4 && (unsigned int)given == ~0u ? ~(mask)0 : (mask)given;
}
__WW_RTC int lane() { return (int)__lane_id(); }

template <class T> __WW_RTC T from_lane(T value, int from) {
    const int words = (sizeof(T) + 3) / 4;
    int buffer[words] = {};
    __builtin_memcpy(buffer, &value, sizeof(T));
    for (int i = 0; i < words; i++) buffer[i] = __builtin_amdgcn_ds_bpermute(from << 2, buffer[i]);
    T result;
    __builtin_memcpy(&result, buffer, sizeof(T));
    return result;
}
template <class M, class T> __WW_RTC T shfl_sync(M, T value, int source, int width = WARPWAVE_WAVE_SIZE) {
    return from_lane(value, (lane() & ~(width - 1)) | (source & (width - 1)));
}
template <class M, class T> __WW_RTC T shfl_up_sync(M, T value, unsigned int delta, int width = WARPWAVE_WAVE_SIZE) {
    int self = lane(), source = self - (int)delta;
    return from_lane(value, source < (self & ~(width - 1)) ? self : source);
}
template <class M, class T> __WW_RTC T shfl_down_sync(M, T value, unsigned int delta, int width = WARPWAVE_WAVE_SIZE) {
    int self = lane();
    return from_lane(value, (self & (width - 1)) + (int)delta >= width ? self : self + (int)delta);
}
template <class M, class T> __WW_RTC T shfl_xor_sync(M, T value, int lane_mask, int width = WARPWAVE_WAVE_SIZE) {
    int self = lane(), source = self ^ lane_mask;
    return from_lane(value, source >= ((self + width) & ~(width - 1)) ? self : source);
}
template <class M> __WW_RTC mask ballot_sync(M given, int vote) { return ballot(vote != 0) & whole_mask(given); }
template <class M> __WW_RTC int any_sync(M given, int vote) { return ballot_sync(given, vote) != 0; }
template <class M> __WW_RTC int all_sync(M given, int vote) { return ballot_sync(given, vote == 0) == 0; }
__WW_RTC mask activemask() { return ballot(true); }
__WW_RTC void syncwarp(mask = ~(mask)0) {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
__WW_RTC int dp4a(int a, int b, int c) {
    for (int i = 0; i < 4; i++) c += (int)(signed char)(a >> (8 * i)) * (int)(signed char)(b >> (8 * i));
    return c;
}
__WW_RTC unsigned int dp4a(unsigned int a, unsigned int b, unsigned int c) {
    for (int i = 0; i < 4; i++) c += ((a >> (8 * i)) & 0xffu) * ((b >> (8 * i)) & 0xffu);
    return c;
}
template <class T> __WW_RTC T load(const T *pointer) { return *pointer; }
template <class T> __WW_RTC void store(T *pointer, T value) { *pointer = value; }
__WW_RTC void nanosleep(unsigned int nanoseconds) {
    for (unsigned int slept = 0; slept < nanoseconds; slept += 40) __builtin_amdgcn_s_sleep(1);
}
} // namespace __warpwave

#define __shfl_sync __warpwave::shfl_sync
#define __shfl_up_sync __warpwave::shfl_up_sync
#define __shfl_down_sync __warpwave::shfl_down_sync
#define __shfl_xor_sync __warpwave::shfl_xor_sync
#define __ballot_sync __warpwave::ballot_sync
#define __any_sync __warpwave::any_sync
#define __all_sync __warpwave::all_sync
#define __activemask __warpwave::activemask
#define __syncwarp __warpwave::syncwarp
#define __dp4a __warpwave::dp4a
#define __ldcg __warpwave::load
#define __ldca __warpwave::load
#define __ldcs __warpwave::load
#define __ldlu __warpwave::load
#define __stcg __warpwave::store
#define __stcs __warpwave::store
#define __stwb __warpwave::store
#define __stwt __warpwave::store
#define __nanosleep __warpwave::nanosleep
#define __trap __builtin_trap

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
template <int __warpwave_ = 0> __device__ inline __half __hmax(__half a, __half b) {
    return __hisnan(a) ? b : __hisnan(b) ? a : __hgt(a, b) ? a : b;
}
template <int __warpwave_ = 0> __device__ inline __half __hmin(__half a, __half b) {
    return __hisnan(a) ? b : __hisnan(b) ? a : __hlt(a, b) ? a : b;
}
template <int __warpwave_ = 0> __device__ inline float rsqrt(float x) { return rsqrtf(x); }
#ifndef assert
#define assert(condition) ((condition) ? (void)0 : __builtin_trap())
#endif
#undef __WW_RTC
