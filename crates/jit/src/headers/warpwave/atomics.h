// Atomics: relaxed, at device scope; `_block` and `_system` forms at theirs.
//
// A float sum may be a compare-and-swap loop: the one-instruction form does nothing on memory shared with the host on some cards.
// The option -munsafe-fp-atomics asks for it all the same.
#pragma once

#define __WW_ATOMIC(name, operation, type, suffix, scope)                                                                          \
    __WW_OVERRIDABLE type name##suffix(type *address, type value) {                                                                \
        return __hip_atomic_fetch_##operation(address, value, __ATOMIC_RELAXED, scope);                                            \
    }
#define __WW_INTEGER(type, suffix, scope)                                                                                          \
    __WW_ATOMIC(atomicAdd, add, type, suffix, scope)                                                                               \
    __WW_ATOMIC(atomicMin, min, type, suffix, scope)                                                                               \
    __WW_ATOMIC(atomicMax, max, type, suffix, scope)                                                                               \
    __WW_ATOMIC(atomicAnd, and, type, suffix, scope)                                                                               \
    __WW_ATOMIC(atomicOr, or, type, suffix, scope)                                                                                 \
    __WW_ATOMIC(atomicXor, xor, type, suffix, scope)                                                                               \
    __WW_OVERRIDABLE type atomicSub##suffix(type *address, type value) {                                                           \
        return __hip_atomic_fetch_add(address, (type)-value, __ATOMIC_RELAXED, scope);                                             \
    }                                                                                                                              \
    __WW_OVERRIDABLE type atomicCAS##suffix(type *address, type expected, type value) {                                            \
        __hip_atomic_compare_exchange_strong(address, &expected, value, __ATOMIC_RELAXED, __ATOMIC_RELAXED, scope);                \
        return expected;                                                                                                           \
    }
#define __WW_EXCHANGE(type, suffix, scope)                                                                                         \
    __WW_OVERRIDABLE type atomicExch##suffix(type *address, type value) {                                                          \
        return __hip_atomic_exchange(address, value, __ATOMIC_RELAXED, scope);                                                     \
    }
#define __WW_ALL(suffix, scope, scope_name)                                                                                        \
    __WW_INTEGER(int, suffix, scope)                                                                                               \
    __WW_INTEGER(unsigned int, suffix, scope)                                                                                      \
    __WW_INTEGER(long, suffix, scope)                                                                                              \
    __WW_INTEGER(unsigned long, suffix, scope)                                                                                     \
    __WW_INTEGER(long long, suffix, scope)                                                                                         \
    __WW_INTEGER(unsigned long long, suffix, scope)                                                                                \
    __WW_ATOMIC(atomicAdd, add, float, suffix, scope)                                                                              \
    __WW_ATOMIC(atomicAdd, add, double, suffix, scope)                                                                             \
    __WW_EXCHANGE(int, suffix, scope)                                                                                              \
    __WW_EXCHANGE(unsigned int, suffix, scope)                                                                                     \
    __WW_EXCHANGE(long, suffix, scope)                                                                                             \
    __WW_EXCHANGE(unsigned long, suffix, scope)                                                                                    \
    __WW_EXCHANGE(long long, suffix, scope)                                                                                        \
    __WW_EXCHANGE(unsigned long long, suffix, scope)                                                                               \
    __WW_EXCHANGE(float, suffix, scope)                                                                                            \
    __WW_EXCHANGE(double, suffix, scope)                                                                                           \
    __WW_OVERRIDABLE unsigned int atomicInc##suffix(unsigned int *address, unsigned int limit) {                                   \
        return __builtin_amdgcn_atomic_inc32(address, limit, __ATOMIC_RELAXED, scope_name);                                        \
    }                                                                                                                              \
    __WW_OVERRIDABLE unsigned int atomicDec##suffix(unsigned int *address, unsigned int limit) {                                   \
        return __builtin_amdgcn_atomic_dec32(address, limit, __ATOMIC_RELAXED, scope_name);                                        \
    }
__WW_ALL(, __HIP_MEMORY_SCOPE_AGENT, "agent")
__WW_ALL(_block, __HIP_MEMORY_SCOPE_WORKGROUP, "workgroup")
__WW_ALL(_system, __HIP_MEMORY_SCOPE_SYSTEM, "")
#undef __WW_ALL
#undef __WW_EXCHANGE
#undef __WW_INTEGER
#undef __WW_ATOMIC

// 16 bits: no such instruction; the word around them is swapped, as often as its other half changes meanwhile.
__WW_OVERRIDABLE unsigned short atomicCAS(unsigned short *address, unsigned short expected, unsigned short value) {
    size_t place = (size_t)address;
    unsigned int *word = (unsigned int *)(place & ~(size_t)3);
    unsigned int shift = (unsigned int)(place & 2) * 8;
    unsigned int seen = __hip_atomic_load(word, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    while ((unsigned short)(seen >> shift) == expected) {
        unsigned int wanted = (seen & ~(0xffffu << shift)) | ((unsigned int)value << shift);
        if (__hip_atomic_compare_exchange_strong(word, &seen, wanted, __ATOMIC_RELAXED, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT))
            return expected;
    }
    return (unsigned short)(seen >> shift);
}

namespace __warpwave {
// Applies `change` to the 16 or 32 bits at `address` and returns what was there.
template <class Bits, class Change> __WW_DEVICE Bits atomic_update(Bits *address, Change change) {
    Bits seen = *(volatile Bits *)address;
    for (;;) {
        Bits found = atomicCAS(address, seen, change(seen));
        if (found == seen) return seen;
        seen = found;
    }
}
} // namespace __warpwave
