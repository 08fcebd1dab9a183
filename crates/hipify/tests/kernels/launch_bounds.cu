// Bounds and attributes of kernels.
template <int threads> __global__ void __launch_bounds__(threads) sized(float *x) { x[threadIdx.x] += threads; }
template __global__ void sized<128>(float *);
extern "C" __global__ void __launch_bounds__(256, 2) two(float *__restrict__ x) { x[threadIdx.x] *= 2; }
extern "C" __global__ __launch_bounds__(1024, 1, 1) void three(const __grid_constant__ int n, float *x) { x[n] = 3; }
extern "C" __global__ void __maxnreg__(64) few(float *x) { *x = 4; }
static __device__ __noinline__ float apart(float x) { return x * x; }
static __device__ __forceinline__ float inside(float x) { return apart(x) + 1; }
extern "C" __global__ void calls(float *x) { *x = inside(*x); }
