//! The explanation of each wave-size hazard.

/// Code, title and explanation of each hazard, in order. An explanation says what is detected, why it is wrong on 64 lanes and how to
/// fix it, and ends with the code before and after.
pub const CODES: &[(u16, &str, &str)] = &[
    (
        201,
        "32-bit full lane mask",
        "`0xffffffff`, `~0u`, `-1` or a constant of that value is the mask of a warp-wide operation. It is meant as every lane, but names \
lanes 0 to 31 only: half of a wave64. HIP's `_sync` functions take a 64-bit mask and reject a shorter one at compile time. `~0ull` means \
every lane on both vendors: NVIDIA's functions use the lower half. A constant is reported once, at its definition. It is not fixed \
automatically where only the first 32 threads run: neither mask is right there on wave64.

before:
    #define FULL_MASK 0xffffffff
    v += __shfl_xor_sync(FULL_MASK, v, 1);
    bool all = __all_sync(0xffffffff, v > 0);
after:
    #define FULL_MASK ~0ull
    v += __shfl_xor_sync(FULL_MASK, v, 1);
    bool all = __all_sync(~0ull, v > 0);
",
    ),
    (
        202,
        "partial lane mask of 32 bits",
        "A literal such as `0x0000ffff` is a 32-bit mask written for a 32-lane warp. HIP expects a 64-bit mask that contains every lane executing \
the call; on wave64, lanes 32 to 63 can reach it but are not in the mask. Use a cooperative-groups tile for a group of fewer lanes.

before:
    if (lane < 16) v += __shfl_down_sync(0x0000ffff, v, 8);
after:
    auto tile = cg::tiled_partition<16>(cg::this_thread_block());
    if (lane < 16) v += tile.shfl_down(v, 8);
",
    ),
    (
        203,
        "lane mask stored in 32 bits",
        "`__ballot_sync`, `__activemask` and `__match_any_sync` return one bit per lane: 64 bits on wave64. Storing, returning or casting \
the result as `unsigned` or `int` silently drops lanes 32 to 63. Use `unsigned long long`, or `auto`, which is correct on NVIDIA and AMD. \
The automatic fix applies where every use of the variable has the same meaning in 64 bits.

before:
    unsigned votes = __ballot_sync(~0ull, keep);
    int n = __popc(votes);
after:
    unsigned long long votes = __ballot_sync(~0ull, keep);
    int n = __popcll(votes);
",
    ),
    (
        204,
        "32-bit intrinsic on a lane mask",
        "`__popc`, `__ffs`, `__clz` and `__brev` take 32 bits, so they ignore the upper half of a wave64 mask: upper lanes are not counted \
or found. The 64-bit forms give the same result on NVIDIA, where the upper half is zero; with `__clzll`, subtract from 63 instead of 31.

before:
    int leader = __ffs(__activemask()) - 1;
    int last = 31 - __clz(votes);
after:
    int leader = __ffsll(__activemask()) - 1;
    int last = 63 - __clzll(votes);
",
    ),
    (
        205,
        "32-bit shift by a lane index",
        "`1u << lane` is undefined for lanes 32 and up, and `(1u << lane) - 1` misses those lanes. Shift `1ull`, and store the result in 64 \
bits. Shifts that select a bit of ordinary data, such as `1u << (i % 32)`, are not reported.

before:
    int rank = __popcll(votes & ((1u << lane) - 1));
after:
    int rank = __popcll(votes & ((1ull << lane) - 1));
",
    ),
    (
        206,
        "lane mask compared with a 32-bit full mask",
        "The mask of a full wave64 has 64 bits set, so a comparison with `0xffffffff` is false when all lanes agree, and true when only the \
lower 32 do.

before:
    if (__ballot_sync(~0ull, done) == 0xffffffff) break;
after:
    if (__all_sync(~0ull, done)) break;
",
    ),
    (
        207,
        "lane or warp index computed with a hard-coded warp size of 32",
        "`threadIdx.x & 31`, `% 32`, `/ 32`, `>> 5`, `warp * 32 + lane` and `lane == 31` assume 32 lanes per warp. On a wave64 two \
lanes then get index 0, and work meant for one lane per warp is done twice. This is reported where the function uses warp-level \
operations, or where a name mentions lanes or warps; groups of 32 threads that only exchange data through shared memory and \
`__syncthreads()` are correct for any wave size. Use `warpSize`, or keep segments of 32 by passing a width of 32 to every shuffle; \
such code is not reported.

before:
    int lane = threadIdx.x & 31;
    int warp = threadIdx.x >> 5;
after:
    int lane = threadIdx.x % warpSize;
    int warp = threadIdx.x / warpSize;
",
    ),
    (
        208,
        "warp size defined as 32",
        "A macro or constant defines the warp size as 32, and everything that uses it assumes so. It is reported at the definition only. On \
AMD define it for the compiled device, and check the shared arrays and launches that use it. If the number is a segment of 32, with a \
width in each shuffle, give it another name.

before:
    #define WARP_SIZE 32
after:
    #if defined(__GFX8__) || defined(__GFX9__)
    #define WARP_SIZE 64
    #else
    #define WARP_SIZE 32
    #endif
",
    ),
    (
        209,
        "`warpSize` used as a compile-time constant",
        "In HIP `warpSize` is not a constant expression, because one binary may run on either wave size. It does not compile as an array \
length or a template argument, or in `constexpr`, `static_assert` or `case`; in `#if` it evaluates to 0.

before:
    __shared__ float buffer[warpSize];
after:
    constexpr int kMaxLanes = 64;
    __shared__ float buffer[kMaxLanes];
",
    ),
    (
        210,
        "reduction or scan over 32 lanes",
        "Shuffles with offsets 16, 8, 4, 2 and 1 reduce 32 lanes. A wave64 needs an offset of 32 as well: without it lane 0 holds the sum of \
half of the wave. Start at `warpSize / 2`, or keep segments of 32 by passing the width, which is the automatic fix: it changes nothing \
on NVIDIA, where 32 is the default, and makes each half of a wave64 a segment of its own.

before:
    for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(~0ull, v, d);
after, over the full wave:
    for (int d = warpSize / 2; d > 0; d /= 2) v += __shfl_down_sync(~0ull, v, d);
after, in segments of 32:
    for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(~0ull, v, d, 32);
",
    ),
    (
        211,
        "shuffle without a width in code that assumes 32 lanes",
        "Without a width a shuffle spans the full wave. This is a warning if the source lane is 16 to 31, which is usually meant to \
be the last lane of a warp, and a note if the function computes lane indices modulo 32: `__shfl_sync(m, v, 0)` then gives the upper half of a wave64 \
the value of lane 0. A width of 32, the default on NVIDIA, keeps the halves apart.

before:
    int lane = threadIdx.x % 32;
    total = __shfl_sync(~0ull, total, 31);
after:
    int lane = threadIdx.x % 32;
    total = __shfl_sync(~0ull, total, 31, 32);
",
    ),
    (
        212,
        "number of warps computed with a hard-coded warp size of 32",
        "`blockDim.x / 32` is twice the number of waves on a wave64 GPU. The condition `lane < blockDim.x / 32` then reads partial sums \
that no wave wrote; on the host it doubles grid and buffer sizes, or assigns rows to warps that do not exist. Shared arrays with one \
element per 32 threads are large enough and are not reported, nor is `(n + 31) / 32 * 32`.

before:
    float v = threadIdx.x < blockDim.x / 32 ? sums[lane] : 0.f;
after:
    float v = threadIdx.x < blockDim.x / warpSize ? sums[lane] : 0.f;
",
    ),
    (
        213,
        "warp-synchronous code without a barrier",
        "The tail of a shared-memory reduction omits barriers on the assumption that 32 threads run in lockstep. The language does not \
guarantee that: since Volta NVIDIA schedules lanes independently, and AMD's compiler may reorder accesses or keep values in registers. \
Use `__syncthreads()` outside of the condition, or shuffles.

before:
    if (tid < 32) { s[tid] += s[tid + 32]; s[tid] += s[tid + 16]; s[tid] += s[tid + 8]; /* … */ }
after:
    for (int k = 32; k > 0; k /= 2) {
        if (tid < k) s[tid] += s[tid + k];
        __syncthreads();
    }
",
    ),
    (
        214,
        "inline PTX reads a lane or warp special register",
        "`%laneid`, `%warpid` and `%lanemask_lt` are PTX special registers, which assume 32-lane warps. AMD has no PTX, and its lane masks have 64 bits.

before:
    asm(\"mov.u32 %0, %%lanemask_lt;\" : \"=r\"(below));
after:
    unsigned long long below = (1ull << (threadIdx.x % warpSize)) - 1;
",
    ),
    (
        215,
        "inline PTX with a warp-level instruction",
        "The PTX instructions `shfl`, `vote`, `match`, `redux`, `ldmatrix` and `mma` work on 32 lanes, with 32-bit masks or registers laid out \
over 32 lanes. The first four are translated and then operate on the full wave, so a 32-bit mask covers only half of a wave64; use a 64-bit mask. For matrices use \
rocWMMA or MFMA instructions, which have different layouts.

before:
    asm(\"vote.sync.ballot.b32 %0, p, 0xffffffff;\" : \"=r\"(votes));
after:
    unsigned long long votes = __ballot_sync(~0ull, p);
",
    ),
    (
        216,
        "first warp selected as the first 32 threads",
        "`if (threadIdx.x < 32)` selects half of a wave64. Warp-level work inside it, such as a ballot, a match or a reduction that starts at \
`warpSize / 2`, runs with lanes 32 to 63 disabled: their values are undefined, and a full mask includes inactive lanes. Elementwise work \
on 32 threads, such as clearing 32 bins, is not reported.

before:
    if (threadIdx.x < 32) total = warp_sum(sums[threadIdx.x]);
after:
    if (threadIdx.x < warpSize)
        total = warp_sum(threadIdx.x < warps ? sums[threadIdx.x] : 0.f);
",
    ),
    (
        217,
        "size of a coalesced group compared with 32",
        "`coalesced_threads()` has up to 64 threads on wave64: a size of 32 does not mean that all lanes are active. `tiled_partition<32>` \
has 32 threads on both and is never reported.

before:
    if (group.size() == 32) fast_path();
after:
    if (group.size() == warpSize) fast_path();
",
    ),
    (
        218,
        "loop over lanes with a hard-coded stride of 32",
        "A loop starts at the lane index and has a stride of 32. With 64 lanes every item is processed twice, and sums are wrong. Functions \
whose shuffles all pass a width of 32 work in segments of 32 lanes and are not reported.

before:
    for (int c = lane; c < cols; c += 32) sum += row[c];
after:
    for (int c = lane; c < cols; c += warpSize) sum += row[c];
",
    ),
    (
        219,
        "block of 32 threads for a kernel that uses `warpSize`",
        "The launch has 32 threads in x, and the launched kernel works with `warpSize` lanes. On a wave64 half of the lanes are inactive: \
their values are undefined in shuffles, and loops with a stride of `warpSize` skip half of the items. Use a block size that is a multiple of \
the wave size, taken from `cudaDeviceProp::warpSize` on the host.

before:
    k<<<n, 32>>>(x);
after:
    k<<<n, properties.warpSize>>>(x);
",
    ),
];
