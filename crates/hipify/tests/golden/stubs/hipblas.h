// Declarations after the documented signatures, only of what the golden files use, so that a wrong argument fails to compile.
#pragma once

typedef void *hipblasHandle_t;
enum hipblasStatus_t { HIPBLAS_STATUS_SUCCESS = 0 };
enum hipblasOperation_t { HIPBLAS_OP_N = 111, HIPBLAS_OP_T = 112 };

hipblasStatus_t hipblasDestroy(hipblasHandle_t);
hipblasStatus_t hipblasSgemm(hipblasHandle_t, hipblasOperation_t a, hipblasOperation_t b, int m, int n, int k, const float *alpha,
                             const float *A, int lda, const float *B, int ldb, const float *beta, float *C, int ldc);
