// 10:5: WW0304 note: asynchronous copy replaced by a synchronous one; waits become no-ops
// 11:5: WW0304 note: asynchronous copy replaced by a synchronous one; waits become no-ops
// 12:5: WW0304 note: asynchronous copy replaced by a synchronous one; waits become no-ops
// 13:5: WW0304 note: asynchronous copy replaced by a synchronous one; waits become no-ops
// 14:5: WW0304 note: asynchronous copy replaced by a synchronous one; waits become no-ops
// 15:5: WW0304 note: asynchronous copy replaced by a synchronous one; waits become no-ops
// Shared memory by its address within the block: copies, loads, stores.
__device__ unsigned shared_address(const void *pointer) {
    unsigned address;
    do { unsigned int __ww0 = {}; unsigned long long __ww1 = (unsigned long long)(pointer); unsigned long long __ww_wide = {}; __ww_wide = __ww1 & 0xffffffff; __ww0 = (unsigned int)(__ww_wide); (address) = __ww0; } while (0);
    return address;
}
extern "C" __global__ void shared_memory(const float4 *in, float4 *out, int bytes) {
    __shared__ float4 tile[256];
    unsigned to = shared_address(&tile[threadIdx.x]);
    do { unsigned int __ww0 = (unsigned int)(to); unsigned long long __ww1 = (unsigned long long)(in + threadIdx.x); { typedef unsigned int __ww_words __attribute__((ext_vector_type(4))); *((__attribute__((address_space(3))) __ww_words *)(unsigned int)(__ww0 + 0)) = *((const __ww_words *)(__ww1 + 0)); } } while (0);
    do { unsigned int __ww0 = (unsigned int)(to); unsigned long long __ww1 = (unsigned long long)(in + threadIdx.x); long long __ww2 = (long long)(8); if ((int)__ww2 == 16) { typedef unsigned int __ww_words __attribute__((ext_vector_type(4))); *((__attribute__((address_space(3))) __ww_words *)(unsigned int)(__ww0 + 0)) = *((const __ww_words *)(__ww1 + 0)); } else for (int __ww_i = 0; __ww_i < (int)__ww2 / 4; __ww_i++) ((__attribute__((address_space(3))) unsigned int *)(unsigned int)(__ww0 + 0))[__ww_i] = ((const unsigned int *)(__ww1 + 0))[__ww_i]; } while (0);
    do { unsigned int __ww0 = (unsigned int)(to); unsigned long long __ww1 = (unsigned long long)(in + threadIdx.x); long long __ww2 = (long long)(16); unsigned int __ww3 = (unsigned int)(bytes); if ((int)__ww3 >= (int)__ww2) { if ((int)__ww2 == 16) { typedef unsigned int __ww_words __attribute__((ext_vector_type(4))); *((__attribute__((address_space(3))) __ww_words *)(unsigned int)(__ww0 + 0)) = *((const __ww_words *)(__ww1 + 0)); } else for (int __ww_i = 0; __ww_i < (int)__ww2 / 4; __ww_i++) ((__attribute__((address_space(3))) unsigned int *)(unsigned int)(__ww0 + 0))[__ww_i] = ((const unsigned int *)(__ww1 + 0))[__ww_i]; } else for (int __ww_i = 0; __ww_i < (int)__ww2; __ww_i++) ((__attribute__((address_space(3))) unsigned char *)(unsigned int)(__ww0 + 0))[__ww_i] = __ww_i < (int)__ww3 ? ((const unsigned char *)(__ww1 + 0))[__ww_i] : 0; } while (0);
    do {  } while (0);
    do { long long __ww0 = (long long)(1); } while (0);
    do {  } while (0);
    do { __syncthreads(); } while (0);
    float x;
    do { float __ww0 = {}; unsigned int __ww1 = (unsigned int)(to); float __ld0_0 = ((__attribute__((address_space(3))) const float *)(unsigned int)(__ww1 + 4))[0]; __ww0 = __ld0_0; (x) = __ww0; } while (0);
    do { unsigned int __ww0 = (unsigned int)(to); float __ww1 = (float)(x); float __ww2 = (float)(x); long long __ww3 = (long long)(8); ((__attribute__((address_space(3))) float *)(unsigned int)(__ww0 + __ww3))[0] = __ww1; ((__attribute__((address_space(3))) float *)(unsigned int)(__ww0 + __ww3))[1] = __ww2; } while (0);
    unsigned long long generic;
    do { unsigned long long __ww0 = {}; unsigned long long __ww1 = (unsigned long long)((unsigned long long)to); __ww0 = (unsigned long long)(void *)(__attribute__((address_space(3))) char *)(unsigned int)__ww1; (generic) = (__typeof__(generic))__ww0; } while (0);
    __syncthreads();
    out[threadIdx.x] = *(float4 *)generic;
}
