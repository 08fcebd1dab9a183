// expect: safe
#define REDUCE32(v) \
    for (int o_ = 16; o_ > 0; o_ >>= 1) \
        (v) += __shfl_xor_sync(~0ull, (v), o_, 32)
#define FOR_EACH_LANE_GROUP(i) for (int i = 0; i < 32; ++i)
