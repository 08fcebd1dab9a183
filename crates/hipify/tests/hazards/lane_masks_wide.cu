// expect: safe
__device__ __forceinline__ int lane_id() { return threadIdx.x & (warpSize - 1); }

__device__ unsigned long long lanes_below() {
    const int lane = lane_id();
    return (1ull << lane) - 1;
}
