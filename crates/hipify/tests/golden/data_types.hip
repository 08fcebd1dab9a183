// options: roc hip-data-types

#include <hip/hip_runtime.h>
#include <rocblas.h>
void run(hipDataType type) {
  hipDataType other = HIP_R_16F;
  size_t size = sizeof(hipDataType);
}
