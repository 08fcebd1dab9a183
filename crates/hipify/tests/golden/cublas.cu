#include <cuda_runtime.h>
#include <cublas_v2.h>

void multiply(cublasHandle_t handle, int n, const float *a, const float *b, float *c) {
  const float one = 1.0f, zero = 0.0f;
  cublasStatus_t status = cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_T, n, n, n, &one, a, n, b, n, &zero, c, n);
  if (status != CUBLAS_STATUS_SUCCESS) cublasDestroy(handle);
}
