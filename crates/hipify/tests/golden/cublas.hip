#include <hip/hip_runtime.h>
#include <hipblas.h>

void multiply(hipblasHandle_t handle, int n, const float *a, const float *b, float *c) {
  const float one = 1.0f, zero = 0.0f;
  hipblasStatus_t status = hipblasSgemm(handle, HIPBLAS_OP_N, HIPBLAS_OP_T, n, n, n, &one, a, n, b, n, &zero, c, n);
  if (status != HIPBLAS_STATUS_SUCCESS) hipblasDestroy(handle);
}
