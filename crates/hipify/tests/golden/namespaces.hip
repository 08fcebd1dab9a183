
#include <hip/hip_runtime.h>
#include <hipcub/hipcub.hpp>
#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/sort.h>
using namespace hipcub;
namespace mine { int cub = 1; }
template <typename T> struct Sort { typedef ::hipcub::BlockRadixSort<T, 128, 4> Type; };
void run(thrust::device_vector<int> &v, int *temp, size_t &bytes) {
  hipcub::DeviceReduce::Sum(temp, bytes, v.begin(), temp, v.size());
  thrust::sort(thrust::hip::par, v.begin(), v.end());
}
