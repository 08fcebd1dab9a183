// Hopper's warpgroup products (wgmma) and their barriers: NVIDIA sm_90a only.

#pragma once

#include "common/types.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ inline u32 shared_address_of(const void *at) { return (u32)__cvta_generic_to_shared(at); }

// An mbarrier: `count` arrivals complete a phase; waiters name its parity.
struct Barrier {
    u32 at;
    __device__ void init(u32 count) const { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory"); }
    __device__ void arrive() const { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory"); }
    // Arrives, and holds the phase open until the copy engine has written `bytes`.
    __device__ void expect(u32 bytes) const {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
    }
    __device__ void wait(u32 phase) const {
        asm volatile("{\n"
                     ".reg .pred done;\n"
                     "again:\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                     "@!done bra again;\n"
                     "}" ::"r"(at), "r"(phase)
                     : "memory");
    }
};

// Makes this thread's writes to shared memory visible to the async proxy (wgmma).
__device__ inline void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// wgmma: products are issued between begin() and commit(); wait<N>() leaves N commits pending.
__device__ inline void begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING> __device__ inline void wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory"); }
// Tells the compiler that wgmma wrote these registers.
template <int N> __device__ inline void mark_written(f32 (&x)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) asm volatile("" : "+f"(x[i])::"memory");
}

// Matrix descriptor of a tile: 128-byte swizzle, panel stride, and 1024 bytes between groups of eight rows.
__device__ inline u64 descriptor(u32 at, u32 panel) { return (u64)(at >> 4) | (u64)(panel >> 4) << 16 | (u64)(1024 >> 4) << 32 | 1ull << 62; }

#define R4(c, i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])
#define R16(c, i) R4(c, i), R4(c, i + 4), R4(c, i + 8), R4(c, i + 12)
#define R32(c, i) R16(c, i), R16(c, i + 16)
#define R64(c, i) R32(c, i), R32(c, i + 32)
#define R80(c, i) R64(c, i), R16(c, i + 64)
#define R128(c, i) R64(c, i), R64(c, i + 64)
#define N16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define N32 N16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define N64                                                                                                                        \
    N32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, " \
        "%56, %57, %58, %59, %60, %61, %62, %63"
#define N80 N64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define N128                                                                                                                       \
    N80 ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, "    \
        "%103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, "   \
        "%123, %124, %125, %126, %127"

template <int N> struct Width {};

// c = a · bᵀ (+ c) of 64 × N and 16 columns, both operands in shared memory with their columns adjacent.
#define WGMMA_SHARED(T, NAME, N, R, NUMBERS, A, B, KEEP)                                                                           \
    __device__ inline void multiply(T, Width<N>, f32 *c, u64 a, u64 b, int keep) {                                                 \
        asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, " KEEP ", 0;\n"                                                       \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." NAME "." NAME " {" NUMBERS "}, " A ", " B ", keep, 1, 1, 0, 0;\n}" \
                     : R(c, 0)                                                                                                     \
                     : "l"(a), "l"(b), "r"(keep)                                                                                   \
                     : "memory");                                                                                                  \
    }
#define WGMMA_SHARED_FOR(T, NAME)                                                                                                  \
    WGMMA_SHARED(T, NAME, 64, R32, N32, "%32", "%33", "%34")                                                                       \
    WGMMA_SHARED(T, NAME, 128, R64, N64, "%64", "%65", "%66")                                                                      \
    WGMMA_SHARED(T, NAME, 160, R80, N80, "%80", "%81", "%82")                                                                      \
    WGMMA_SHARED(T, NAME, 256, R128, N128, "%128", "%129", "%130")
WGMMA_SHARED_FOR(f16, "f16")
WGMMA_SHARED_FOR(bf16, "bf16")

#endif
