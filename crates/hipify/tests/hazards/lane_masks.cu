// expect: WW0207@2, WW0205@6, WW0205@11
__device__ __forceinline__ int lane_id() { return threadIdx.x & 31; }

__device__ unsigned lanes_below() {
    const int lane = lane_id();
    return (1u << lane) - 1;
}

__device__ unsigned lanes_up_to() {
    const int lane = lane_id();
    return 0xffffffffu >> (31 - lane);
}
