// Vectorized access: several elements in one load or store.

#pragma once

#include "common/types.cuh"

struct Unused {};

template <class T, int WIDTH> struct alignas(sizeof(T) * WIDTH) Pack { T at[WIDTH]; };
template <int WIDTH> struct Pack<Unused, WIDTH> { Unused at[WIDTH]; };

// The type of an access of BYTES bytes. NVIDIA's compiler splits stores of packed elements again unless they are explicit.
template <int BYTES> struct Access;
template <> struct Access<1> { typedef u8 Type; };
template <> struct Access<2> { typedef u16 Type; };
template <> struct Access<4> { typedef u32 Type; };
template <> struct Access<8> { typedef uint2 Type; };
template <> struct Access<16> { typedef uint4 Type; };

template <class Raw> __device__ inline void store_raw(Raw *at, Raw raw) {
#if defined(__AMDGCN__)
    *at = raw;
#else
    if constexpr (sizeof(Raw) >= 4) __stwb(at, raw);
    else *at = raw;
#endif
}

template <class T, int WIDTH> union Packed {
    typename Access<sizeof(T) * WIDTH>::Type raw;
    Pack<T, WIDTH> pack;
    __device__ Packed() {}
};

template <class T, int WIDTH> __device__ inline Pack<T, WIDTH> get(const T *at) {
    Packed<T, WIDTH> packed;
    packed.raw = *(const typename Access<sizeof(T) * WIDTH>::Type *)at;
    return packed.pack;
}
template <class T, int WIDTH> __device__ inline void put(T *at, Pack<T, WIDTH> pack) {
    Packed<T, WIDTH> packed;
    packed.pack = pack;
    store_raw((typename Access<sizeof(T) * WIDTH>::Type *)at, packed.raw);
}
