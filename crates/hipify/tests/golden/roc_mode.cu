// options: roc
#include <cuda_runtime.h>
#include <cublas_v2.h>
#include <cusparse.h>
void run(cublasHandle_t blas, cusparseHandle_t sparse, int n, float *x, float *y, csrilu02Info_t info, cusparseMatDescr_t matrix) {
  const float two = 2.0f;
  cublasSaxpy(blas, n, &two, x, 1, y, 1);
  int size;
  cusparseScsrilu02_bufferSize(sparse, n, n, matrix, x, nullptr, nullptr, info, &size);
  cusparseScsrilu02_analysis(sparse, n, n, matrix, x, nullptr, nullptr, info, CUSPARSE_SOLVE_POLICY_USE_LEVEL, y);
  cusparseScsrilu02(sparse, n, n, matrix, x, nullptr, nullptr, info, CUSPARSE_SOLVE_POLICY_NO_LEVEL, y);
}
