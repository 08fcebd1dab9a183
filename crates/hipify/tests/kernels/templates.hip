// Templates, lambdas, namespaces, classes, overloads.
namespace outer {
namespace inner {
template <class T, int n> struct Tile {
    T data[n];
    __device__ T sum() const {
        T s = 0;
        for (T v : data) s += v;
        return s;
    }
};
} // namespace inner
template <class F, class... Args> __device__ auto apply(F f, Args... args) { return f(args...); }
} // namespace outer
template <class T> __global__ void fill(T *x, T value) { x[threadIdx.x] = value; }
template __global__ void fill<double>(double *, double);
extern "C" __global__ void lambdas(float *x) {
    outer::inner::Tile<float, 4> tile = {{1, 2, 3, x[0]}};
    auto scale = [=] __device__(float a, float b) { return a * b + tile.data[3]; };
    if constexpr (sizeof(float) == 4) x[1] = outer::apply(scale, tile.sum(), 2.0f);
}
