// Declarations after the documented signatures, only of what the golden files use, so that a wrong argument fails to compile.
#pragma once

typedef struct miopenHandle *miopenHandle_t;
typedef struct miopenTensorDescriptor *miopenTensorDescriptor_t;
enum miopenStatus_t { miopenStatusSuccess = 0 };
enum miopenSoftmaxAlgorithm_t { MIOPEN_SOFTMAX_FAST = 0 };
enum miopenSoftmaxMode_t { MIOPEN_SOFTMAX_MODE_CHANNEL = 1 };

miopenStatus_t miopenSoftmaxForward_V2(miopenHandle_t, const void *alpha, miopenTensorDescriptor_t inputs, const void *x,
                                       const void *beta, miopenTensorDescriptor_t outputs, void *y, miopenSoftmaxAlgorithm_t,
                                       miopenSoftmaxMode_t);
