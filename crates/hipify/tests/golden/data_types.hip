// options: roc hip-data-types

#include <hip/hip_runtime.h>
#include <rocblas.h>
void run(hipDataType type) {
  hipDataType other = rocblas_datatype_f16_r;
  size_t size = sizeof(rocblas_datatype);
}
