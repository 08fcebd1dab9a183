// One template, three kernels: the explicit instantiations are what a module contains.
namespace ops {
template <typename T> struct Square {
    __device__ T operator()(T x) const { return x * x; }
};
template <typename T> struct Negate {
    __device__ T operator()(T x) const { return -x; }
};
} // namespace ops

template <typename T, template <typename> class Op> __global__ void map(const T *in, T *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = Op<T>()(in[i]);
}

template __global__ void map<float, ops::Square>(const float *, float *, int);
template __global__ void map<double, ops::Square>(const double *, double *, int);
template __global__ void map<int, ops::Negate>(const int *, int *, int);

namespace ns {
__global__ void add_one(float *data, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] += 1.0f;
}
} // namespace ns
