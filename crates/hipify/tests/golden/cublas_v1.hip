
#include <hip/hip_runtime.h>
#include <hipblas.h>

void old(int n, float *x, float *y) { cublasSaxpy(n, 2.0f, x, 1, y, 1); }
// 3:39 WW0103 warning: `cublasSaxpy` without `cublas_v2.h` is the legacy cuBLAS interface, which has no HIP equivalent
