// options: call
#include <cuda_runtime.h>
template <typename T, int N> __global__ void fill(T *x);
template <typename T> __global__ void copy(T *to, const T *from);
namespace deep { template <int N> struct Shape { template <class T> static __global__ void go(T *); static const int n = N; }; }
void run(float *x) {
  fill<float, 4><<<deep::Shape<2>::n, (1 > 0 ? 64 : 32)>>>(x);
  copy<<<dim3(1, 2), 64>>>(x, x + 1);
  deep::Shape<3>::go<float><<<1, deep::Shape<4>::n>>>(x);
}
