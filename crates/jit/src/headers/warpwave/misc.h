// Time, traps, memory, printf.
#pragma once

__WW_DEVICE long long clock64() { return (long long)__builtin_readcyclecounter(); }
__WW_DEVICE clock_t clock() { return (clock_t)__builtin_readcyclecounter(); }
// A clock of constant rate.
__WW_DEVICE long long wall_clock64() {
#if __has_builtin(__builtin_readsteadycounter)
    return (long long)__builtin_readsteadycounter();
#else
    return (long long)__builtin_amdgcn_s_memrealtime();
#endif
}
__WW_DEVICE void __nanosleep(unsigned int nanoseconds) {
    // One unit is 64 cycles, about 40 ns at the clocks of these cards.
    for (unsigned int slept = 0; slept < nanoseconds; slept += 40) __builtin_amdgcn_s_sleep(1);
}
__WW_DEVICE __attribute__((noreturn)) void __trap() { __builtin_trap(); }
__WW_DEVICE void __brkpt() { __builtin_debugtrap(); }

__WW_DEVICE bool __isGlobal(const void *pointer) {
    return !__builtin_amdgcn_is_shared(pointer) && !__builtin_amdgcn_is_private(pointer);
}
__WW_DEVICE bool __isShared(const void *pointer) { return __builtin_amdgcn_is_shared(pointer); }
__WW_DEVICE bool __isLocal(const void *pointer) { return __builtin_amdgcn_is_private(pointer); }

// Of any length: the compiler makes loops of them.
__WW_BOTH void *memcpy(void *to, const void *from, size_t bytes) { return __builtin_memcpy(to, from, bytes); }
__WW_BOTH void *memmove(void *to, const void *from, size_t bytes) { return __builtin_memmove(to, from, bytes); }
__WW_BOTH void *memset(void *to, int value, size_t bytes) { return __builtin_memset(to, value, bytes); }

// clang turns calls into the device library's hostcall protocol, which the HIP runtime answers.
extern "C" __device__ int printf(const char *, ...);

#include "assert.h"
