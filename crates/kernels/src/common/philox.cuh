// Philox 4x32-10 (Salmon et al., 2011): a counter-based generator, so an element's number depends on its index and on nothing else.

#pragma once

#include "common/types.cuh"

// A place in the random numbers of a seed: the key, and both halves of the counter.
struct Philox { u64 seed, stream, position; };

// The four random words of the block `index` after the position.
__device__ inline uint4 philox(const Philox &at, u64 index) {
    const u64 position = at.position + index;
    u32 a = (u32)position, b = (u32)(position >> 32), c = (u32)at.stream, d = (u32)(at.stream >> 32);
    u32 k = (u32)at.seed, l = (u32)(at.seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const u64 first = (u64)0xD2511F53u * a, second = (u64)0xCD9E8D57u * c;
        a = (u32)(second >> 32) ^ b ^ k, b = (u32)second;
        c = (u32)(first >> 32) ^ d ^ l, d = (u32)first;
        k += 0x9E3779B9u, l += 0xBB67AE85u;
    }
    return make_uint4(a, b, c, d);
}
