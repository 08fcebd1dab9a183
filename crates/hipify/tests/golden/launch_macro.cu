// options: call
#include <cuda_runtime.h>
template <typename T> __global__ void fill(T *x);
__global__ void scale(float *x);
#define WHOLE(n, x) \
  if (n) { \
    scale<<<n, 64>>>(x); \
  }
#define FRONT fill<float><<<1, 64>>>
#define LAUNCH(kernel, grid, ...) kernel<<<grid, 128>>>(__VA_ARGS__)
void run(float *x) {
  WHOLE(4, x);
  FRONT(x);
  LAUNCH(scale, 8, x);
  LAUNCH(fill<float>, dim3(2), x);
}
