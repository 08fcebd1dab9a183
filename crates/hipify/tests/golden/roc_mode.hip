// options: roc
#include <hip/hip_runtime.h>
#include <rocblas.h>
#include <rocsparse.h>
void run(rocblas_handle blas, rocsparse_handle sparse, int n, float *x, float *y, rocsparse_mat_info info, rocsparse_mat_descr matrix) {
  const float two = 2.0f;
  rocblas_saxpy(blas, n, &two, x, 1, y, 1);
  int size;
  rocsparse_scsrilu0_buffer_size(sparse, n, n, matrix, x, nullptr, nullptr, info, reinterpret_cast<size_t*>(&size));
  rocsparse_scsrilu0_analysis(sparse, n, n, matrix, x, nullptr, nullptr, info, rocsparse_analysis_policy_force, rocsparse_solve_policy_auto, y);
  rocsparse_scsrilu0(sparse, n, n, matrix, x, nullptr, nullptr, info, rocsparse_solve_policy_auto, y);
}
// 5:83 WW0105 note: CUDA 12.2 deprecated `csrilu02Info_t`
// 9:3 WW0105 note: CUDA 12.2 deprecated `cusparseScsrilu02_bufferSize`
// 10:3 WW0105 note: CUDA 12.2 deprecated `cusparseScsrilu02_analysis`
// 10:79 WW0105 note: CUDA 12.2 deprecated `CUSPARSE_SOLVE_POLICY_USE_LEVEL`
// 11:3 WW0105 note: CUDA 12.2 deprecated `cusparseScsrilu02`
// 11:70 WW0105 note: CUDA 12.2 deprecated `CUSPARSE_SOLVE_POLICY_NO_LEVEL`
