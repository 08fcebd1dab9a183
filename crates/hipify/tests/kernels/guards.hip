// 7:1: WW0303 warning: code under this guard uses `movmatrix.sync.aligned.m8n8.trans.b16`, which has no AMD equivalent; on AMD the other branch of the guard is compiled
// 19:5: WW0301 error: PTX instruction `movmatrix.sync.aligned.m8n8.trans.b16` has no AMD equivalent
// Guards on the architecture: plain code stays, code that AMD lacks gives way to the other branch.
#if defined(WARPWAVE_CUDA_ARCH) && WARPWAVE_CUDA_ARCH >= 800
extern "C" __global__ void guarded(float *x) { x[threadIdx.x] += 1.0f; }
#endif

__device__ unsigned twist(unsigned x) {
#if 0 && ( WARPWAVE_CUDA_ARCH >= 750)
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
    do { extern __device__ __attribute__((error("WW0301: PTX instruction movmatrix.sync.aligned.m8n8.trans.b16 has no AMD equivalent"))) void __warpwave_unsupported_560(); __warpwave_unsupported_560(); } while (0)

;
    return y;
}

#ifdef WARPWAVE_AMD
extern "C" __global__ void ours(unsigned *x) { x[0] = twist(x[0]); }
#else
extern "C" __global__ void ours(unsigned *x) { asm("wgmma.fence.sync.aligned;"); }
#endif
