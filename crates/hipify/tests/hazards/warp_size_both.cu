// expect: safe
#if defined(__HIP_PLATFORM_AMD__)
#define WARP_SIZE 64
#else
#define WARP_SIZE 32
#endif

__device__ int lane_id() { return threadIdx.x % WARP_SIZE; }
