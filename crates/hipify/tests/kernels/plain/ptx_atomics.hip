
#include <hip/hip_runtime.h>
// atom and red: operations, types, orders and scopes, in global and shared memory.
extern "C" __global__ void atomics(unsigned *u, int *s, unsigned long long *w, float *f, double *d) {
    __shared__ unsigned counter;
    unsigned at = (unsigned)(size_t)&counter, old;
    if (threadIdx.x == 0) counter = 0;
    __syncthreads();
    do { unsigned int __ww0 = {}; unsigned int __ww1 = (unsigned int)(at); unsigned int __ww2 = (unsigned int)(1); __ww0 = __hip_atomic_fetch_add((__attribute__((address_space(3))) unsigned int *)(unsigned int)(__ww1 + 0), __ww2, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); (old) = __ww0; } while (0);
    do { unsigned int __ww0 = {}; unsigned long long __ww1 = (unsigned long long)(u); __ww0 = __hip_atomic_fetch_add((unsigned int *)(__ww1 + 0), 1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); (old) = __ww0; } while (0);
    do { unsigned int __ww0 = {}; unsigned long long __ww1 = (unsigned long long)(u); __ww0 = __hip_atomic_fetch_add((unsigned int *)(__ww1 + 0), 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT); (old) = __ww0; } while (0);
    do { unsigned int __ww0 = {}; unsigned long long __ww1 = (unsigned long long)(s); unsigned int __ww2 = (unsigned int)(old); __ww0 = (unsigned int)(__hip_atomic_fetch_min((int *)(__ww1 + 0), (int)__ww2, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM)); (old) = __ww0; } while (0);
    do { unsigned long long __ww0 = {}; unsigned long long __ww1 = (unsigned long long)(w); unsigned long long __ww2 = (unsigned long long)(w[2]); __ww0 = __hip_atomic_fetch_max((unsigned long long *)(__ww1 + 0), __ww2, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); (w[1]) = (__typeof__(w[1]))__ww0; } while (0);
    do { unsigned int __ww0 = {}; unsigned long long __ww1 = (unsigned long long)(u + 1); unsigned int __ww2 = (unsigned int)(old); __ww0 = __hip_atomic_fetch_and((unsigned int *)(__ww1 + 0), __ww2, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); (old) = __ww0; } while (0);
    do { unsigned int __ww0 = {}; unsigned long long __ww1 = (unsigned long long)(u); unsigned int __ww2 = (unsigned int)(old); __ww0 = __hip_atomic_fetch_or((unsigned int *)(__ww1 + 8), __ww2, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); (old) = __ww0; } while (0);
    do { unsigned long long __ww0 = {}; unsigned long long __ww1 = (unsigned long long)(w); unsigned long long __ww2 = (unsigned long long)(w[2]); __ww0 = __hip_atomic_fetch_xor((unsigned long long *)(__ww1 + 0), __ww2, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); (w[1]) = (__typeof__(w[1]))__ww0; } while (0);
    do { unsigned int __ww0 = {}; unsigned long long __ww1 = (unsigned long long)(u); unsigned int __ww2 = (unsigned int)(old); __ww0 = __hip_atomic_exchange((unsigned int *)(__ww1 + 0), __ww2, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); (old) = __ww0; } while (0);
    do { unsigned int __ww0 = {}; unsigned long long __ww1 = (unsigned long long)(u); unsigned int __ww2 = (unsigned int)(old); unsigned int __ww3 = (unsigned int)(7); unsigned int __ww_old0 = __ww2; __hip_atomic_compare_exchange_strong((unsigned int *)(__ww1 + 0), &__ww_old0, __ww3, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT); __ww0 = __ww_old0; (old) = __ww0; } while (0);
    do { unsigned int __ww0 = {}; unsigned long long __ww1 = (unsigned long long)(u); unsigned int __ww2 = (unsigned int)(31); __ww0 = __builtin_amdgcn_atomic_inc32((unsigned int *)(__ww1 + 0), __ww2, __ATOMIC_RELAXED, "agent"); (old) = __ww0; } while (0);
    do { unsigned long long __ww0 = (unsigned long long)(f); float __ww1 = (float)(1.0f); (void)__hip_atomic_fetch_add((float *)(__ww0 + 0), __ww1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); } while (0);
    do { unsigned long long __ww0 = (unsigned long long)(d); double __ww1 = (double)(1.0); (void)__hip_atomic_fetch_add((double *)(__ww0 + 0), __ww1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP); } while (0);
    u[threadIdx.x] = old + counter;
}
