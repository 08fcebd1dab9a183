#include <hip/hip_runtime.h>
#ifdef HIP_INCLUDE_HIP_DRIVER_TYPES_H
#define check(x) ((void)(x))
#endif
#if defined(HIP_INCLUDE_HIP_HIP_RUNTIME_H) && !defined(HIPRAND_H_)
inline void reset() { check(hipDeviceReset()); }
#endif
#ifndef CUBLAS_API_H_
#define CUBLAS_API_H_
#endif
