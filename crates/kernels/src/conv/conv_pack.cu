// Reorders a convolution's weights from (filters, channels, taps) to (filters, taps, channels), the order of k. A general transposing copy
// would waste most of each tile on the few taps.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME conv_pack_u16
#define T u16
#define TAPS 9
#endif

#include "common/types.cuh"

#define CHANNELS 256

// A block has CHANNELS channels of a filter. Filters begin `from` elements apart in `in`, and `to` elements apart in `out`.
extern "C" __global__ void __launch_bounds__(256) NAME(T *out, const T *__restrict__ in, u64 from, u64 to, u32 channels) {
    __shared__ T tile[CHANNELS * TAPS];
    const u32 first = blockIdx.x * CHANNELS, n = min((u32)CHANNELS, channels - first);
    in += blockIdx.y * from + (u64)first * TAPS;
    out += blockIdx.y * to + first;
    for (u32 i = threadIdx.x; i < n * TAPS; i += 256) tile[i] = in[i];
    __syncthreads();
    for (u32 c = threadIdx.x; c < n; c += 256) {
#pragma unroll
        for (u32 tap = 0; tap < TAPS; ++tap) out[(u64)tap * channels + c] = tile[c * TAPS + tap];
    }
}
