// expect: WW0201@3, WW0210@6, WW0210@13, WW0207@19, WW0207@20, WW0212@21, WW0218@24, WW0218@27, WW0218@29
#include <cfloat>
#define FULL_MASK 0xffffffff

__inline__ __device__ float warpReduceMax(float val) {
    for (int offset = 16; offset > 0; offset /= 2)
        val = fmaxf(val, __shfl_xor_sync(FULL_MASK, val, offset));
    return val;
}

__inline__ __device__ float warpReduceSum(float val) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
        val += __shfl_xor_sync(FULL_MASK, val, offset);
    return val;
}

__global__ void softmax(const float *x, float *y, int cols) {
    const int lane_id = threadIdx.x % 32;
    const int warp_id = threadIdx.x / 32;
    const int warps = blockDim.x / 32;
    const int row = blockIdx.x * warps + warp_id;
    float m = -FLT_MAX;
    for (int c = lane_id; c < cols; c += 32) m = fmaxf(m, x[row * cols + c]);
    m = warpReduceMax(m);
    float s = 0.f;
    for (int c = lane_id; c < cols; c += 32) s += expf(x[row * cols + c] - m);
    s = warpReduceSum(s);
    for (int c = lane_id; c < cols; c += 32) y[row * cols + c] = expf(x[row * cols + c] - m) / s;
}
