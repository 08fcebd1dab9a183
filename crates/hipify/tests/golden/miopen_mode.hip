// options: miopen experimental

#include <hip/hip_runtime.h>
#include <miopen/miopen.h>
void run(miopenHandle_t handle, miopenTensorDescriptor_t a, miopenTensorDescriptor_t b, float *x, float *y) {
  const float one = 1.0f, zero = 0.0f;
  miopenSoftmaxForward_V2(handle, &one, a, x, &zero, b, y, MIOPEN_SOFTMAX_FAST, MIOPEN_SOFTMAX_MODE_CHANNEL);
}
