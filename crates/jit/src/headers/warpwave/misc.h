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
// A shared address is the low half of a generic one.
__WW_DEVICE size_t __cvta_generic_to_shared(const void *pointer) { return (size_t)pointer & 0xffffffffu; }
__WW_DEVICE void *__cvta_shared_to_generic(size_t address) {
    return (void *)(__attribute__((address_space(3))) char *)(unsigned int)address;
}
__WW_DEVICE size_t __cvta_generic_to_global(const void *pointer) { return (size_t)pointer; }
__WW_DEVICE void *__cvta_global_to_generic(size_t address) { return (void *)address; }
// The compute unit a wave runs on (below RDNA), or the pair of them: a number of the hardware, with gaps.
__WW_DEVICE unsigned int __smid() {
#if WARPWAVE_ISA_VERSION >= 10000
    unsigned int id = __builtin_amdgcn_s_getreg(23 | 10 << 6 | 10 << 11); // HW_ID1 from bit 10: WGP 4 bits, 2 more, SA, one more, SE 3
    return (id >> 8 & 7) << 5 | (id >> 6 & 1) << 4 | (id & 15);
#else
    unsigned int id = __builtin_amdgcn_s_getreg(4 | 8 << 6 | 7 << 11); // HW_ID from bit 8: CU 4 bits, SH 1, SE 3
    return id;
#endif
}

// Of any length: the compiler makes loops of them.
__WW_BOTH void *memcpy(void *to, const void *from, size_t bytes) { return __builtin_memcpy(to, from, bytes); }
__WW_BOTH void *memmove(void *to, const void *from, size_t bytes) { return __builtin_memmove(to, from, bytes); }
__WW_BOTH void *memset(void *to, int value, size_t bytes) { return __builtin_memset(to, value, bytes); }

// clang turns calls into the device library's hostcall protocol, which the HIP runtime answers.
extern "C" __device__ int printf(const char *, ...);

#include "assert.h"
