#include <cuda_runtime.h>
#ifdef __DRIVER_TYPES_H__
#define check(x) ((void)(x))
#endif
#if defined(__CUDA_RUNTIME_H__) && !defined(CURAND_H_)
inline void reset() { check(cudaDeviceReset()); }
#endif
#ifndef CUBLAS_API_H_
#define CUBLAS_API_H_
#endif
