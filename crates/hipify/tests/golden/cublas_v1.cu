#include <cublas.h>

void old(int n, float *x, float *y) { cublasSaxpy(n, 2.0f, x, 1, y, 1); }
