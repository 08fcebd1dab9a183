//! The help page of each code.

/// Number, title and explanation of each hazard, in order. An explanation says what is found, why it is wrong on 64 lanes and what to
/// do, and ends with the code before and after.
pub const CODES: &[(u16, &str, &str)] = &[
    (
        201,
        "a full mask of 32 bits",
        "`0xffffffff`, `~0u`, `-1` or a constant of that value is the mask of a warp-wide operation. It means every lane of the warp, but \
names lanes 0 to 31 only: half of a wave64. HIP's `_sync` functions take a mask of 64 bits and refuse a shorter one when they are \
compiled. `~0ull` means every lane on both: NVIDIA's functions take its lower half. A constant is told once, where it is defined. The \
fix is left to you where only the first 32 threads run: there neither mask is right on a wave64.

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
        "a mask that picks lanes of the first 32",
        "A literal such as `0x0000ffff` names some lanes of a warp of 32. On a wave64 the lanes 32 to 63 that run the same code are not in \
it, which HIP forbids, and the type has 32 bits where HIP wants 64. Groups of fewer lanes are best made as tiles.

before:
    if (lane < 16) v += __shfl_down_sync(0x0000ffff, v, 8);
after:
    auto tile = cg::tiled_partition<16>(cg::this_thread_block());
    v += tile.shfl_down(v, 8);
",
    ),
    (
        203,
        "a lane mask kept in 32 bits",
        "What `__ballot_sync`, `__activemask` and `__match_any_sync` return has a bit for each lane: 64 on a wave64. Kept in `unsigned` or \
`int`, returned as such, stored to an array of such or cast, the lanes 32 to 63 are lost without a word. Keep it in \
`unsigned long long`, or in `auto`, which is right on both. The fix is made where every use of the variable means the same in 64 bits.

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
        "a 32-bit bit function on a lane mask",
        "`__popc`, `__ffs`, `__clz` and `__brev` take 32 bits: of a wave64's mask they see the lower half, so lanes are not counted and \
leaders not found. The 64-bit forms give the same on NVIDIA, where the upper half is zero; only `__clz` must count from 63.

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
        "a lane's bit made in 32 bits",
        "`1u << lane` is undefined from lane 32 on, and `(1u << lane) - 1` misses the lanes above. Shift `1ull`, and keep the result in 64 \
bits. A bit of a word of data, `1u << (i % 32)`, is no lane and is not reported.

before:
    int rank = __popcll(votes & ((1u << lane) - 1));
after:
    int rank = __popcll(votes & ((1ull << lane) - 1));
",
    ),
    (
        206,
        "a lane mask compared with 32 ones",
        "A full wave64 has 64 ones, so the comparison with `0xffffffff` is false when all lanes agree, and true when the wrong ones do.

before:
    if (__ballot_sync(~0ull, done) == 0xffffffff) break;
after:
    if (__all_sync(~0ull, done)) break;
",
    ),
    (
        207,
        "lanes or warps numbered by 32",
        "`threadIdx.x & 31`, `% 32`, `/ 32`, `>> 5`, `warp * 32 + lane` and `lane == 31` number lanes and warps of 32. On a wave64 two \
numbers share a wave: lane 0 comes twice, and what one lane per warp should do is done by two. It is reported where lanes work together \
in the function, or where a name speaks of lanes or warps; rows of 32 threads that only share memory behind `__syncthreads()` are right \
on any wave. Count by `warpSize`, or keep segments of 32 by naming a width of 32 in every shuffle: then it is no longer reported.

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
        "a warp's size defined as 32",
        "A macro or constant says that a warp has 32 lanes, and everything that uses it does too. It is told at the definition only. On AMD \
define it for the device the code is compiled for, and see that shared arrays and launches follow. Where the number is meant as a \
segment of 32, with a width in each shuffle, give it another name.

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
        "`warpSize` where the compiler needs a constant",
        "`warpSize` is a variable to the language: in HIP it is no constant expression, for one binary may run on waves of either size. As \
the length of an array, a template argument, in `constexpr`, `static_assert` or `case` it does not compile; in `#if` it reads as 0.

before:
    __shared__ float buffer[warpSize];
after:
    constexpr int kMaxLanes = 64;
    __shared__ float buffer[kMaxLanes];
",
    ),
    (
        210,
        "a reduction or scan over 32 lanes",
        "Shuffles over 16, 8, 4, 2 and 1 combine 32 lanes. A wave64 needs a step of 32 as well: without it lane 0 has the sum of half of the \
wave. Begin at `warpSize / 2`, or keep segments of 32 by naming the width, which is the fix: it changes nothing on NVIDIA, where 32 is \
the default, and on AMD makes each half of the wave a warp of its own.

before:
    for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(~0ull, v, d);
after, for the whole wave:
    for (int d = warpSize / 2; d > 0; d /= 2) v += __shfl_down_sync(~0ull, v, d);
after, in segments of 32:
    for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(~0ull, v, d, 32);
",
    ),
    (
        211,
        "a shuffle without a width among lanes counted by 32",
        "Without a width a shuffle reaches over the whole wave. A warning, where it names lane 16 to 31, which stands for the last of a warp; \
a note, where the function counts lanes by 32: `__shfl_sync(m, v, 0)` then gives the upper half of a wave64 the value of the lower \
half's first lane. The width of 32 keeps each half to itself, and is the default on NVIDIA.

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
        "warps counted as 32 threads each",
        "`blockDim.x / 32` is twice the number of waves of 64. Read as `lane < blockDim.x / 32` it takes sums into account that no wave \
wrote; on the host it makes launches and buffers twice as large as needed, or rows assigned to warps that are not there. Arrays in \
shared memory that have a place for each 32 threads are large enough and are not reported, nor is `(n + 31) / 32 * 32`.

before:
    float v = threadIdx.x < blockDim.x / 32 ? sums[lane] : 0.f;
after:
    float v = threadIdx.x < blockDim.x / warpSize ? sums[lane] : 0.f;
",
    ),
    (
        213,
        "threads in lock-step without a barrier",
        "The tail of a reduction in shared memory, without barriers because 32 threads are thought to run in lock-step. No language rule says \
so: since Volta NVIDIA's lanes run apart, and AMD's compiler may reorder or keep values in registers. On a wave64 the other 32 lanes run \
along when the condition lets them. `__syncthreads()` outside of the condition, or shuffles, make it right.

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
        "PTX that reads a lane or warp register",
        "`%laneid`, `%warpid` and `%lanemask_lt` are registers of NVIDIA's warps of 32. AMD has no PTX, and a lane mask has 64 bits there.

before:
    asm(\"mov.u32 %0, %%lanemask_lt;\" : \"=r\"(below));
after:
    unsigned long long below = (1ull << (threadIdx.x % warpSize)) - 1;
",
    ),
    (
        215,
        "PTX that works on a warp",
        "`shfl`, `vote`, `match`, `redux`, `ldmatrix` and `mma` in PTX work on 32 lanes, with masks of 32 bits or registers laid out over 32 \
lanes. The first four are translated, and then work on whole waves: a mask of 32 bits holds half of one with 64 lanes. For matrices there
are rocWMMA and MFMA instructions, with other layouts.

before:
    asm(\"vote.sync.ballot.b32 %0, p, 0xffffffff;\" : \"=r\"(votes));
after:
    unsigned long long votes = __ballot_sync(~0ull, p);
",
    ),
    (
        216,
        "the first warp taken for the first 32 threads",
        "`if (threadIdx.x < 32)` lets in half of a wave64. Work behind it that is meant for a whole warp, such as a ballot, a match or a \
reduction that begins at `warpSize / 2`, runs with lanes 32 to 63 switched off: their values are undefined, and a full mask names lanes \
that are not there. Clearing 32 bins in such a condition is no warp's work and is not reported.

before:
    if (threadIdx.x < 32) total = warp_sum(sums[threadIdx.x]);
after:
    if (threadIdx.x < warpSize)
        total = warp_sum(threadIdx.x < warps ? sums[threadIdx.x] : 0.f);
",
    ),
    (
        217,
        "a coalesced group compared with 32",
        "`coalesced_threads()` has up to 64 threads on a wave64: a size of 32 does not say that all run. `tiled_partition<32>` has 32 threads \
on either and is never reported.

before:
    if (group.size() == 32) fast_path();
after:
    if (group.size() == warpSize) fast_path();
",
    ),
    (
        218,
        "lanes that step by 32",
        "A loop begins at the lane and goes on by 32. With 64 lanes the upper ones begin where the lower ones arrive next: each item is taken \
twice, and sums are wrong. In a function whose shuffles all name a width of 32 the lanes are segments, and it is right.

before:
    for (int c = lane; c < cols; c += 32) sum += row[c];
after:
    for (int c = lane; c < cols; c += warpSize) sum += row[c];
",
    ),
];
