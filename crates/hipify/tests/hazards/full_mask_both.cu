// expect: safe
#ifdef __HIP_PLATFORM_AMD__
#define FULL_MASK 0xffffffffffffffffull
#else
#define FULL_MASK 0xffffffff
#endif
__device__ bool any_of(bool p) { return __any_sync(FULL_MASK, p); }
