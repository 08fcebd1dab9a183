// A complete CUDA program with the usual warp-level reduction. `warpwave hipify` translates it and finds what is wrong on AMD GPUs with 64 lanes in a wave.
#include <cstdio>
#include <cuda_runtime.h>

__global__ void block_sum(const float *x, float *out) {
    __shared__ float partial[32];
    float v = x[blockIdx.x * blockDim.x + threadIdx.x];
    for (int offset = 16; offset > 0; offset /= 2) v += __shfl_down_sync(0xffffffff, v, offset);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x == 0) {
        float sum = 0;
        for (int i = 0; i < blockDim.x / 32; i++) sum += partial[i];
        atomicAdd(out, sum);
    }
}

int main() {
    float *x, *out;
    cudaMalloc(&x, 1024 * sizeof(float));
    cudaMalloc(&out, sizeof(float));
    cudaMemset(x, 0, 1024 * sizeof(float));
    cudaMemset(out, 0, sizeof(float));
    block_sum<<<4, 256>>>(x, out);
    printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
}
