// Orders the assignments of tokens to experts by expert, and divides those of each expert into tiles. One block.
//
// A tile is its expert, its first place in the order, and its number of assignments; unused tiles have none. The order within an expert is
// arbitrary: no result depends on it.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME moe_sort
#endif

#include "common/pdl.cuh"
#include "common/types.cuh"

struct Sort {
    u32 assignments, experts, tile, tiles;
};

extern "C" __global__ void __launch_bounds__(1024) NAME(const u32 *ids, u32 *order, u32 *tiles, Sort s) {
    extern __shared__ u32 smem[];
    u32 *counts = smem, *starts = counts + s.experts, *tile_starts = starts + s.experts;
    pdl_sync();
    for (u32 e = threadIdx.x; e < s.experts; e += blockDim.x) counts[e] = 0;
    __syncthreads();
    for (u32 i = threadIdx.x; i < s.assignments; i += blockDim.x) {
        if (ids[i] < s.experts) atomicAdd(&counts[ids[i]], 1u);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        u32 start = 0, tile = 0;
        for (u32 e = 0; e < s.experts; ++e) {
            starts[e] = start, tile_starts[e] = tile;
            start += counts[e], tile += (counts[e] + s.tile - 1) / s.tile;
        }
        tile_starts[s.experts] = tile;
    }
    __syncthreads();
    for (u32 e = threadIdx.x; e < s.experts; e += blockDim.x) {
        const u32 first = tile_starts[e], count = counts[e];
        for (u32 t = first; t < tile_starts[e + 1] && t < s.tiles; ++t) {
            const u32 done = (t - first) * s.tile;
            tiles[3 * t] = e, tiles[3 * t + 1] = starts[e] + done;
            tiles[3 * t + 2] = count - done < s.tile ? count - done : s.tile;
        }
    }
    for (u32 t = tile_starts[s.experts] + threadIdx.x; t < s.tiles; t += blockDim.x) tiles[3 * t + 2] = 0;
    __syncthreads();
    for (u32 i = threadIdx.x; i < s.assignments; i += blockDim.x) {
        if (ids[i] < s.experts) order[atomicAdd(&starts[ids[i]], 1u)] = i;
    }
}
