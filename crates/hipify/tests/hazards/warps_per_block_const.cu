// expect: safe
constexpr int kWarpsPerBlock = 32;
constexpr int WARP_ROWS = 32;
constexpr int kThreads = 32;
constexpr unsigned kAllBits = 0xffffffffu;
template <int WARPS = 32> __global__ void work(float *x) { x[threadIdx.x] = WARPS; }
