// 16:5: WW0304 note: prefetch removed: it does not affect results
// 17:5: WW0304 note: asynchronous copy replaced by a synchronous one; waits become no-ops
// 18:5: WW0304 note: asynchronous copy replaced by a synchronous one; waits become no-ops
// Loads and stores with hints, fences, barriers, sleep.
extern "C" __global__ void memory(const float4 *in, float4 *out, unsigned *flag) {
    float4 v;
    do { float __ww0 = {}; float __ww1 = {}; float __ww2 = {}; float __ww3 = {}; unsigned long long __ww4 = (unsigned long long)(in + threadIdx.x); float __ld0_0 = ((const float *)(__ww4 + 0))[0]; float __ld0_1 = ((const float *)(__ww4 + 0))[1]; float __ld0_2 = ((const float *)(__ww4 + 0))[2]; float __ld0_3 = ((const float *)(__ww4 + 0))[3]; __ww0 = __ld0_0; __ww1 = __ld0_1; __ww2 = __ld0_2; __ww3 = __ld0_3; (v.x) = __ww0; (v.y) = __ww1; (v.z) = __ww2; (v.w) = __ww3; } while (0)

;
    do { unsigned long long __ww0 = (unsigned long long)(out + threadIdx.x); float __ww1 = (float)(v.x); float __ww2 = (float)(v.y); float __ww3 = (float)(v.z); float __ww4 = (float)(v.w); ((float *)(__ww0 + 0))[0] = __ww1; ((float *)(__ww0 + 0))[1] = __ww2; ((float *)(__ww0 + 0))[2] = __ww3; ((float *)(__ww0 + 0))[3] = __ww4; } while (0)
;
    unsigned seen;
    do { unsigned int __ww0 = {}; unsigned long long __ww1 = (unsigned long long)(flag); unsigned int __ld0_0 = ((const volatile unsigned int *)(__ww1 + 4))[0]; __threadfence(); __ww0 = __ld0_0; (seen) = __ww0; } while (0);
    do { unsigned long long __ww0 = (unsigned long long)(flag); unsigned int __ww1 = (unsigned int)(seen); __threadfence(); ((volatile unsigned int *)(__ww0 + 0))[0] = __ww1; } while (0);
    do { __threadfence(); } while (0);
    do { __threadfence(); } while (0);
    do { __syncthreads(); } while (0);
    do { unsigned int __ww0 = (unsigned int)(100); __nanosleep(__ww0); } while (0);
    do { unsigned long long __ww0 = (unsigned long long)(in); } while (0);
    do {  } while (0);
    do { long long __ww0 = (long long)(0); } while (0);
    asm volatile("" ::: "memory");
    if (seen == 7) do { __builtin_trap(); } while (0);
    else flag[2] = seen;
}
