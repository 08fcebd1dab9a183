// expect: WW0209@2, WW0209@7, WW0209@8, WW0209@11
constexpr int kLanes = warpSize;

template <int W> __device__ int width();

__global__ void gather(const int *in, int *out) {
    __shared__ int buffer[warpSize];
    static_assert(warpSize == 32, "this kernel packs votes in one word");
    buffer[threadIdx.x % warpSize] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = buffer[threadIdx.x / warpSize] + width<warpSize>();
}
