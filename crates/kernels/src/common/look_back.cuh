// Words that blocks publish while the grid runs, for the blocks after them (decoupled look-back).
//
// A word carries its own flag, so no fence is needed, which would wait for all of a block's writes.

#pragma once

#include "common/types.cuh"

__device__ inline void publish_word(u64 *to, u64 word) {
#if defined(__AMDGCN__)
    __hip_atomic_store(to, word, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
#else
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
#endif
}

__device__ inline u64 published_word(const u64 *from) {
#if defined(__AMDGCN__)
    return __hip_atomic_load(from, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
#else
    u64 word;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
    return word;
#endif
}

// Called where a block waits for another's word.
__device__ inline void wait_a_moment() {
#if defined(__AMDGCN__)
    __builtin_amdgcn_s_sleep(1);
#endif
}

// The sum of the tiles before, `STEP` words apart from those of the first. A word is a number and, above it, `own` if this is the tile's or
// `own + 1` if it is the sum of all tiles up to it, as the first tile's always is; words from before have less.
template <int STEP> __device__ inline u32 look_back(const u64 *words, u32 tile, u32 own) {
    // Words read at once.
    const int LOOK = 4;
    u32 sum = 0;
    i64 at = (i64)tile - 1;
    while (at >= 0) {
        u64 got[LOOK];
#pragma unroll
        for (int k = 0; k < LOOK; ++k) got[k] = published_word(words + (at > k ? at - k : 0) * STEP);
        bool missing = false;
#pragma unroll
        for (int k = 0; k < LOOK; ++k) {
            const u32 state = (u32)(got[k] >> 32);
            missing = missing || state < own;
            if (missing) continue;
            sum += (u32)got[k];
            if (state > own) return sum;
            --at;
        }
        if (missing) wait_a_moment();
    }
    return sum;
}
