// Keywords of CUDA C++ as attributes of clang, and the words this prelude is written in.
#pragma once

#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __inline_hint__
#define __align__(n) __attribute__((aligned(n)))
#define __grid_constant__
#define __nv_pure__ __attribute__((pure))

// Only the largest block counts. The second and third number (blocks per multiprocessor, per cluster) tune register use for
// another machine's register file.
#define __warpwave_first(first, ...) first
#define __launch_bounds__(...) __attribute__((amdgpu_flat_work_group_size(1, __warpwave_first(__VA_ARGS__, 0))))
#define __maxnreg__(n)

// The source is CUDA C++ compiled at run time, and this prelude stands in for that compiler.
#define __CUDACC__ 1
#define __CUDACC_RTC__ 1
#define __HIP_PLATFORM_AMD__ 1

#define __WW_DEVICE static __device__ inline __attribute__((always_inline))
#define __WW_BOTH static __host__ __device__ inline __attribute__((always_inline))
// A function that a source may define itself, as many do under a guard on __CUDA_ARCH__: a non-template function wins over
// one that is, with the same conversions of its arguments.
#define __WW_OVERRIDABLE template <int __warpwave = 0> __device__ inline __attribute__((always_inline))

typedef __SIZE_TYPE__ size_t;
typedef __PTRDIFF_TYPE__ ptrdiff_t;
typedef long clock_t;
#ifndef NULL
#define NULL __null
#endif
