// options: call
#include <hip/hip_runtime.h>
template <typename T, int N> __global__ void fill(T *x);
template <typename T> __global__ void copy(T *to, const T *from);
namespace deep { template <int N> struct Shape { template <class T> static __global__ void go(T *); static const int n = N; }; }
void run(float *x) {
  hipLaunchKernelGGL(HIP_KERNEL_NAME(fill<float, 4>), dim3(deep::Shape<2>::n), dim3((1 > 0 ? 64 : 32)), 0, 0, x);
  hipLaunchKernelGGL(HIP_KERNEL_NAME(copy), dim3(1, 2), dim3(64), 0, 0, x, x + 1);
  hipLaunchKernelGGL(HIP_KERNEL_NAME(deep::Shape<3>::go<float>), dim3(1), dim3(deep::Shape<4>::n), 0, 0, x);
}
