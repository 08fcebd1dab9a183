// expect: safe
__device__ float sum16(float v) {
    for (int o = 8; o > 0; o >>= 1) v += __shfl_down_sync(~0ull, v, o, 16);
    return v;
}

__global__ void rows16(const float *x, float *y) {
    float v = sum16(x[blockIdx.x * blockDim.x + threadIdx.x]);
    if (threadIdx.x % 16 == 0) y[threadIdx.x / 16] = v;
}
