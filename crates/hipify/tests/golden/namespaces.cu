#include <cub/cub.cuh>
#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/sort.h>
using namespace cub;
namespace mine { int cub = 1; }
template <typename T> struct Sort { typedef ::cub::BlockRadixSort<T, 128, 4> Type; };
void run(thrust::device_vector<int> &v, int *temp, size_t &bytes) {
  cub::DeviceReduce::Sum(temp, bytes, v.begin(), temp, v.size());
  thrust::sort(thrust::cuda::par, v.begin(), v.end());
}
