// 8:5: WW0304 note: 32-bit lane mask: lanes 32 to 63 of a wave64 are dropped
// 9:5: WW0304 note: 32-bit lane mask: lanes 32 to 63 of a wave64 are dropped
// 12:5: WW0304 note: 32-bit lane mask: lanes 32 to 63 of a wave64 are dropped
// 15:5: WW0304 note: `%smid` becomes the compute unit id; the ids may have gaps
// Shuffles with a width or a predicate, matches, votes, and the processor's number.
extern "C" __global__ void exchange(unsigned *out, unsigned limits) {
    unsigned lane = threadIdx.x, r, same, inside, sm;
    do { unsigned int __ww0 = {}; unsigned int __ww1 = (unsigned int)(lane); __ww0 = __shfl_sync(0xffffffff, __ww1, (int)3, 4); (r) = __ww0; } while (0);
    do { unsigned int __ww0 = {}; unsigned int __ww1 = (unsigned int)(r); __ww0 = __shfl_up_sync(0xffffffff, __ww1, (int)1, 16); (r) = __ww0; } while (0);
    do { unsigned int __ww0 = {}; unsigned int __ww1 = (unsigned int)(r); unsigned int __ww2 = (unsigned int)(limits); bool __ww_in0; unsigned int __ww_got0; { int __ww_lane = (int)(__lane_id() & 31), __ww_by = (int)((2) & 31), __ww_keep = (int)((__ww2) >> 8 & 31), __ww_last = (__ww_lane & __ww_keep) | ((int)(__ww2) & 31 & ~__ww_keep), __ww_from = __ww_lane + __ww_by; __ww_in0 = __ww_from <= __ww_last; __ww_got0 = __shfl(__ww1, __ww_in0 ? __ww_from : __ww_lane, 32); } __ww0 = __ww_got0; (r) = __ww0; } while (0);
    do { unsigned int __ww0 = {}; unsigned int __ww1 = {}; unsigned int __ww2 = (unsigned int)(r); bool __ww_p = {}; bool __ww_in1; unsigned int __ww_got1; { int __ww_lane = (int)(__lane_id() & 31), __ww_by = (int)((1) & 31), __ww_keep = (int)((0) >> 8 & 31), __ww_last = (__ww_lane & __ww_keep) | ((int)(0) & 31 & ~__ww_keep), __ww_from = __ww_lane - __ww_by; __ww_in1 = __ww_from >= __ww_last; __ww_got1 = __shfl(__ww2, __ww_in1 ? __ww_from : __ww_lane, 32); } __ww0 = __ww_got1; __ww_p = __ww_in1; __ww1 = __ww_p ? 1 : 0; (r) = __ww0; (inside) = __ww1; } while (0);
    do { unsigned int __ww0 = {}; unsigned int __ww1 = (unsigned int)(r & 3); auto __ww_same0 = __match_any_sync(0xffffffff, __ww1); __ww0 = __ww_same0; (same) = __ww0; } while (0);
    do { unsigned int __ww0 = {}; unsigned int __ww1 = {}; unsigned int __ww2 = (unsigned int)(r); bool __ww_p = {}; int __ww_all1 = 0; auto __ww_same1 = __match_all_sync(0xffffffff, __ww2, &__ww_all1); __ww0 = __ww_same1; __ww_p = __ww_all1 != 0; __ww1 = __ww_p ? 1 : 0; (same) = __ww0; (r) = __ww1; } while (0);
    do { unsigned int __ww0 = {}; unsigned int __ww1 = (unsigned int)(r); bool __ww_p = {}; bool __ww_q = {}; __ww_p = (int)__ww1 > 3; __ww_q = __any_sync(0xffffffff, !__ww_p); __ww0 = __ww_q ? 1 : 0; (r) = __ww0; } while (0)
;
    do { unsigned int __ww0 = {}; unsigned int __ww1 = (unsigned int)(r); unsigned int __ww2 = (unsigned int)(same); bool __ww_p = {}; __ww_p = __ww1 != 0; __ww0 = __ballot_sync(__ww2, __ww_p); (same) = __ww0; } while (0);
    do { unsigned int __ww0 = {}; unsigned int __ww1 = (unsigned int)(r); __ww0 = __reduce_max_sync(0xffffffff, __ww1); (r) = __ww0; } while (0);
    do { __syncwarp(); } while (0);
    do { unsigned int __ww0 = {}; __ww0 = (unsigned int)__smid(); (sm) = __ww0; } while (0);
    do { unsigned int __ww0 = {}; __ww0 = (unsigned int)((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) / warpSize); (inside) = __ww0; } while (0);
    out[lane] = r + same + inside + sm;
}
