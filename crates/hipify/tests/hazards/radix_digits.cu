// expect: safe
// The digit is five bits wide: 32 bins, no lanes.
__global__ void digit_counts(const unsigned *keys, int *counts, int n, int shift) {
    __shared__ int bins[32];
    if (threadIdx.x < 32) bins[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&bins[(keys[i] >> shift) & 31], 1);
    __syncthreads();
    if (threadIdx.x < 32) counts[threadIdx.x * gridDim.x + blockIdx.x] = bins[threadIdx.x];
}
