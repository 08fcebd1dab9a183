// atom and red: operations, types, orders and scopes, in global and shared memory.
extern "C" __global__ void atomics(unsigned *u, int *s, unsigned long long *w, float *f, double *d) {
    __shared__ unsigned counter;
    unsigned at = (unsigned)(size_t)&counter, old;
    if (threadIdx.x == 0) counter = 0;
    __syncthreads();
    asm volatile("atom.shared.add.u32 %0, [%1], %2;" : "=r"(old) : "r"(at), "r"(1));
    asm volatile("atom.global.add.u32 %0, [%1], 1;" : "=r"(old) : "l"(u) : "memory");
    asm volatile("atom.add.release.gpu.u32 %0, [%1], 1;" : "=r"(old) : "l"(u) : "memory");
    asm volatile("atom.global.acquire.sys.min.s32 %0, [%1], %2;" : "=r"(old) : "l"(s), "r"(old));
    asm volatile("atom.global.max.u64 %0, [%1], %2;" : "=l"(w[1]) : "l"(w), "l"(w[2]));
    asm volatile("atom.global.and.b32 %0, [%1], %2;" : "=r"(old) : "l"(u + 1), "r"(old));
    asm volatile("atom.global.or.b32 %0, [%1+8], %2;" : "=r"(old) : "l"(u), "r"(old));
    asm volatile("atom.global.xor.b64 %0, [%1], %2;" : "=l"(w[1]) : "l"(w), "l"(w[2]));
    asm volatile("atom.global.exch.b32 %0, [%1], %2;" : "=r"(old) : "l"(u), "r"(old));
    asm volatile("atom.acq_rel.gpu.global.cas.b32 %0, [%1], %2, %3;" : "=r"(old) : "l"(u), "r"(old), "r"(7));
    asm volatile("atom.global.inc.u32 %0, [%1], %2;" : "=r"(old) : "l"(u), "r"(31));
    asm volatile("red.global.add.f32 [%0], %1;" ::"l"(f), "f"(1.0f));
    asm volatile("red.relaxed.cta.global.add.f64 [%0], %1;" ::"l"(d), "d"(1.0));
    u[threadIdx.x] = old + counter;
}
