// Barriers, fences, votes and shuffles.
//
// Read in the machine code of gfx90a and gfx1201 (clang 19): a barrier waits for outstanding shared-memory operations before it
// (and on gfx1201 writes back and invalidates around it), a ballot is one comparison or a copy of EXEC, a shuffle is ds_bpermute with
// no comparison where its width is the wave's and its xor mask is known.
//
// Masks: every lane of a wave that is running takes part, as the hardware does it; a mask only selects whose votes are reported.
// Where a wave has 64 lanes, votes return 64 bits, and the 32-bit mask 0xffffffff, which in CUDA means "all of the warp", means all.
#pragma once

#if WARPWAVE_WAVE_SIZE == 64
typedef unsigned long long __warpwave_mask;
#else
typedef unsigned int __warpwave_mask;
#endif

namespace __warpwave {
__WW_DEVICE unsigned int lane() {
#if WARPWAVE_WAVE_SIZE == 64
    unsigned int id = __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u));
#else
    unsigned int id = __builtin_amdgcn_mbcnt_lo(~0u, 0u);
#endif
    __builtin_assume(id < WARPWAVE_WAVE_SIZE);
    return id;
}
__WW_DEVICE __warpwave_mask ballot(bool vote) {
#if WARPWAVE_WAVE_SIZE == 64
    return __builtin_amdgcn_ballot_w64(vote);
#else
    return __builtin_amdgcn_ballot_w32(vote);
#endif
}
template <class M> __WW_DEVICE __warpwave_mask whole_mask(M mask) {
    return sizeof(M) == 4 && (unsigned int)mask == ~0u ? ~(__warpwave_mask)0 : (__warpwave_mask)mask;
}
__WW_DEVICE int popcount(__warpwave_mask mask) { return __builtin_popcountll(mask); }
__WW_DEVICE unsigned int thread_in_block() {
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
} // namespace __warpwave

__WW_DEVICE void __syncthreads() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
__WW_DEVICE void __threadfence_block() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup"); }
__WW_DEVICE void __threadfence() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); }
__WW_DEVICE void __threadfence_system() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, ""); }

// The lanes of a wave run in step; what is left to do is to keep the compiler from moving memory operations across.
__WW_DEVICE void __syncwarp(__warpwave_mask = ~(__warpwave_mask)0) {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}

// Votes of a whole block: one lane per wave adds its wave's votes to a word of shared memory.
__WW_DEVICE int __syncthreads_count(int vote) {
    __attribute__((shared)) static unsigned int votes;
    if (__warpwave::thread_in_block() == 0) votes = 0;
    __syncthreads();
    __warpwave_mask wave = __warpwave::ballot(vote != 0);
    __warpwave_mask running = __warpwave::ballot(true);
    if (__warpwave::lane() == (unsigned int)__builtin_ctzll(running))
        __hip_atomic_fetch_add(&votes, (unsigned int)__warpwave::popcount(wave), __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
    __syncthreads();
    int total = (int)votes;
    // The next call must not clear the word before all have read it.
    __syncthreads();
    return total;
}
__WW_DEVICE int __syncthreads_or(int vote) { return __syncthreads_count(vote) != 0; }
__WW_DEVICE int __syncthreads_and(int vote) { return __syncthreads_count(vote == 0) == 0; }

__WW_DEVICE __warpwave_mask __activemask() { return __warpwave::ballot(true); }
template <class M> __WW_DEVICE __warpwave_mask __ballot_sync(M mask, int vote) {
    return __warpwave::ballot(vote != 0) & __warpwave::whole_mask(mask);
}
template <class M> __WW_DEVICE int __any_sync(M mask, int vote) { return __ballot_sync(mask, vote) != 0; }
template <class M> __WW_DEVICE int __all_sync(M mask, int vote) { return __ballot_sync(mask, vote == 0) == 0; }
template <class M> __WW_DEVICE int __uni_sync(M mask, int vote) { return __all_sync(mask, vote) || !__any_sync(mask, vote); }
__WW_DEVICE __warpwave_mask __ballot(int vote) { return __warpwave::ballot(vote != 0); }
__WW_DEVICE int __any(int vote) { return __warpwave::ballot(vote != 0) != 0; }
__WW_DEVICE int __all(int vote) { return __warpwave::ballot(vote == 0) == 0; }
__WW_DEVICE unsigned int __lane_id() { return __warpwave::lane(); }

namespace __warpwave {
// The value of lane `from`. Values travel in words of 32 bits.
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
// Lanes are grouped into segments of `width` (a power of two). A source outside of the segment gives the lane's own value.
template <class T> __WW_DEVICE T shuffle(T value, int source, int width) {
    int self = (int)lane();
    return from_lane(value, (self & ~(width - 1)) | (source & (width - 1)));
}
template <class T> __WW_DEVICE T shuffle_up(T value, unsigned int delta, int width) {
    int self = (int)lane();
    int source = self - (int)delta;
    return from_lane(value, source < (self & ~(width - 1)) ? self : source);
}
template <class T> __WW_DEVICE T shuffle_down(T value, unsigned int delta, int width) {
    int self = (int)lane();
    return from_lane(value, (self & (width - 1)) + (int)delta >= width ? self : self + (int)delta);
}
template <class T> __WW_DEVICE T shuffle_xor(T value, int lane_mask, int width) {
    int self = (int)lane();
    int source = self ^ lane_mask;
    return from_lane(value, source >= ((self + width) & ~(width - 1)) ? self : source);
}
} // namespace __warpwave

#define __WW_SHUFFLE(type)                                                                                                         \
    template <class M> __WW_DEVICE type __shfl_sync(M, type value, int source, int width = warpSize) {                             \
        return __warpwave::shuffle(value, source, width);                                                                          \
    }                                                                                                                              \
    template <class M> __WW_DEVICE type __shfl_up_sync(M, type value, unsigned int delta, int width = warpSize) {                  \
        return __warpwave::shuffle_up(value, delta, width);                                                                        \
    }                                                                                                                              \
    template <class M> __WW_DEVICE type __shfl_down_sync(M, type value, unsigned int delta, int width = warpSize) {                \
        return __warpwave::shuffle_down(value, delta, width);                                                                      \
    }                                                                                                                              \
    template <class M> __WW_DEVICE type __shfl_xor_sync(M, type value, int lane_mask, int width = warpSize) {                      \
        return __warpwave::shuffle_xor(value, lane_mask, width);                                                                   \
    }                                                                                                                              \
    __WW_DEVICE type __shfl(type value, int source, int width = warpSize) { return __warpwave::shuffle(value, source, width); }    \
    __WW_DEVICE type __shfl_up(type value, unsigned int delta, int width = warpSize) {                                             \
        return __warpwave::shuffle_up(value, delta, width);                                                                        \
    }                                                                                                                              \
    __WW_DEVICE type __shfl_down(type value, unsigned int delta, int width = warpSize) {                                           \
        return __warpwave::shuffle_down(value, delta, width);                                                                      \
    }                                                                                                                              \
    __WW_DEVICE type __shfl_xor(type value, int lane_mask, int width = warpSize) {                                                 \
        return __warpwave::shuffle_xor(value, lane_mask, width);                                                                   \
    }
__WW_SHUFFLE(int)
__WW_SHUFFLE(unsigned int)
__WW_SHUFFLE(long)
__WW_SHUFFLE(unsigned long)
__WW_SHUFFLE(long long)
__WW_SHUFFLE(unsigned long long)
__WW_SHUFFLE(float)
__WW_SHUFFLE(double)

// Which lanes hold the same value; which value all lanes hold.
template <class M, class T> __WW_DEVICE __warpwave_mask __match_any_sync(M mask, T value) {
    __warpwave_mask mine = 0;
    __warpwave_mask rest = __warpwave::ballot(true) & __warpwave::whole_mask(mask);
    while (rest) {
        int first = __builtin_ctzll(rest);
        __warpwave_mask same = __warpwave::ballot(__warpwave::from_lane(value, first) == value) & rest;
        if (same >> __warpwave::lane() & 1) mine = same;
        rest &= ~same;
    }
    return mine;
}
template <class M, class T> __WW_DEVICE __warpwave_mask __match_all_sync(M mask, T value, int *all) {
    __warpwave_mask running = __warpwave::ballot(true) & __warpwave::whole_mask(mask);
    __warpwave_mask same = __warpwave::ballot(__warpwave::from_lane(value, __builtin_ctzll(running)) == value) & running;
    *all = same == running;
    return same == running ? running : 0;
}

// Reductions over the lanes named in the mask that are running.
#define __WW_REDUCE(name, type, expression)                                                                                        \
    template <class M> __WW_DEVICE type name(M mask, type value) {                                                                 \
        __warpwave_mask rest = __warpwave::ballot(true) & __warpwave::whole_mask(mask);                                            \
        type a = __warpwave::from_lane(value, __builtin_ctzll(rest));                                                              \
        for (rest &= rest - 1; rest; rest &= rest - 1) {                                                                           \
            type b = __warpwave::from_lane(value, __builtin_ctzll(rest));                                                          \
            a = expression;                                                                                                        \
        }                                                                                                                          \
        return a;                                                                                                                  \
    }
__WW_REDUCE(__reduce_add_sync, unsigned int, a + b)
__WW_REDUCE(__reduce_add_sync, int, (int)((unsigned int)a + (unsigned int)b))
__WW_REDUCE(__reduce_min_sync, unsigned int, min(a, b))
__WW_REDUCE(__reduce_min_sync, int, min(a, b))
__WW_REDUCE(__reduce_max_sync, unsigned int, max(a, b))
__WW_REDUCE(__reduce_max_sync, int, max(a, b))
__WW_REDUCE(__reduce_and_sync, unsigned int, a & b)
__WW_REDUCE(__reduce_or_sync, unsigned int, a | b)
__WW_REDUCE(__reduce_xor_sync, unsigned int, a ^ b)
#undef __WW_REDUCE
