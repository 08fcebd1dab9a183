#ifndef SCALE_H
#include <hip/hip_runtime.h>

#define SCALE_H
__global__ void scale(float *x, float by);
#endif
