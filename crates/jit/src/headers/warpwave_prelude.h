// Warpwave's prelude: what a CUDA compiler declares by itself, for clang compiling for AMD GPUs without any vendor header.
//
// It is included before the first line of the source. The compiler is told
//   WARPWAVE_WAVE_SIZE    lanes of a wave on the target (64 on GCN and CDNA, 32 on RDNA)
//   WARPWAVE_ISA_VERSION  the target as 1000*major + 100*minor + stepping (gfx90a: 9010)
//   WARPWAVE_CODE_OBJECT_VERSION  the file format's version, 5 or 6
// With hipRTC, which has HIP's own headers built in, only what HIP lacks is added.
//
// __CUDA_ARCH__ stays undefined, for headers of others take it for NVIDIA's compiler. The translation writes WARPWAVE_CUDA_ARCH where
// a source says __CUDA_ARCH__, so that code under its guards is compiled as for a recent architecture; -DWARPWAVE_CUDA_ARCH=800, or
// -D__CUDA_ARCH__=800 as for other compilers, asks for another.
#ifndef WARPWAVE_PRELUDE_H
#define WARPWAVE_PRELUDE_H

#ifdef __clang__
#pragma clang system_header
#endif

#define WARPWAVE 1
#define WARPWAVE_AMD 1
#ifndef WARPWAVE_CUDA_ARCH
#ifdef __CUDA_ARCH__
#define WARPWAVE_CUDA_ARCH __CUDA_ARCH__
#else
#define WARPWAVE_CUDA_ARCH 900
#endif
#endif

#ifdef __HIPCC_RTC__
#include "warpwave/hiprtc.h"
#else
#include "warpwave/keywords.h"
#include "warpwave/traits.h"
#include "warpwave/device_library.h"
#include "warpwave/types.h"
#include "warpwave/index.h"
#include "warpwave/bits.h"
#include "warpwave/convert.h"
#include "warpwave/math.h"
#include "warpwave/math_fast.h"
#include "warpwave/sync.h"
#include "warpwave/atomics.h"
#include "warpwave/simd.h"
#include "warpwave/misc.h"
#endif

#endif
