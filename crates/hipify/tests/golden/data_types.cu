// options: roc hip-data-types
#include <cublas_v2.h>
void run(cudaDataType type) {
  cudaDataType_t other = CUDA_R_16F;
  size_t size = sizeof(cudaDataType);
}
