// Guards on the architecture: plain code stays, code that AMD lacks gives way to the other branch.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
extern "C" __global__ void guarded(float *x) { x[threadIdx.x] += 1.0f; }
#endif

__device__ unsigned twist(unsigned x) {
#if __CUDA_ARCH__ >= 750
    unsigned y;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
    return y;
#else
    return x ^ 1;
#endif
}

// Never called: its instruction is named, and does no harm.
__device__ unsigned unused(unsigned x) {
    unsigned y;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;"
                 : "=r"(y)
                 : "r"(x));
    return y;
}

#ifdef WARPWAVE_AMD
extern "C" __global__ void ours(unsigned *x) { x[0] = twist(x[0]); }
#else
extern "C" __global__ void ours(unsigned *x) { asm("wgmma.fence.sync.aligned;"); }
#endif
