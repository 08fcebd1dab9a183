// expect: WW0201@2, WW0201@5
__device__ inline bool any_of(bool p, unsigned mask = 0xffffffffu) { return __any_sync(mask, p); }

template <typename T>
__device__ inline T from_lane(T v, int lane, unsigned mask = 0xffffffffu)
{
    return __shfl_sync(mask, v, lane);
}
