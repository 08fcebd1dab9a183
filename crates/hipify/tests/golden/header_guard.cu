#ifndef SCALE_H
#define SCALE_H
__global__ void scale(float *x, float by);
#endif
