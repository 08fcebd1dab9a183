// warpSize as a value, as a bound and as a constant; lanes and warps from it.
extern "C" __global__ void warps(float *x) {
    __shared__ float partial[1024 / warpSize];
    int lane = threadIdx.x % warpSize, warp = threadIdx.x / warpSize;
    float sum = x[threadIdx.x];
#pragma unroll
    for (int step = warpSize / 2; step; step >>= 1) sum += __shfl_down_sync(__activemask(), sum, step);
    if (lane == 0) partial[warp] = sum;
    __syncthreads();
    x[threadIdx.x] = partial[warp];
}
