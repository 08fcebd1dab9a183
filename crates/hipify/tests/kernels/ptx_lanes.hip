// 2:17: WW0304 note: lane indices reach 63 on wave64
// 12:5: WW0304 note: 32-bit lane mask: lanes 32 to 63 of a wave64 are dropped
// Special registers, votes, shuffles; a block with registers and a predicate; assembly in a macro.
#define LANE(x) do { unsigned int __ww0 = {}; __ww0 = (unsigned int)__lane_id(); (x) = __ww0; } while (0) \

extern "C" __global__ void lanes(unsigned *out) {
    unsigned lane, r, ballot;
    long long t;
    LANE(lane);
    do { unsigned int __ww0 = {}; __ww0 = (unsigned int)threadIdx.x; (r) = __ww0; } while (0);
    do { unsigned long long __ww0 = {}; __ww0 = (unsigned long long)clock64(); (t) = (__typeof__(t))__ww0; } while (0);
    do { unsigned long long __ww0 = {}; __ww0 = (unsigned long long)wall_clock64(); (t) = (__typeof__(t))__ww0; } while (0);
    do { unsigned int __ww0 = {}; unsigned int __ww1 = (unsigned int)(lane); __ww0 = __shfl_xor_sync(0xffffffff, __ww1, (int)16, 32); (r) = __ww0; } while (0);
    do { unsigned int __ww0 = {}; unsigned int __ww1 = (unsigned int)(lane); unsigned int __ww2 = (unsigned int)(r); bool __ww_p = {}; __ww_p = __ww1 != 0; __ww0 = __ballot_sync(0xffffffff, __ww_p); if (__ww_p) { __ww0 = __ww0 + 1; } __ww0 = __ww_p ? __ww0 : __ww2; (ballot) = __ww0; } while (0)







;
    do { unsigned int __ww0 = {}; unsigned int __ww1 = (unsigned int)(r); __ww0 = (unsigned int)(__reduce_add_sync(0xffffffff, (int)__ww1)); (r) = __ww0; } while (0);
    out[lane] = ballot + r + (unsigned)t;
}
