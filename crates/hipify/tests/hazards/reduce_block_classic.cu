// expect: WW0210@3, WW0201@4, WW0207@10, WW0207@11, WW0212@17
__device__ float warp_sum(float v) {
    for (int offset = 16; offset > 0; offset >>= 1)
        v += __shfl_down_sync(0xffffffff, v, offset);
    return v;
}

__global__ void block_sum(const float *in, float *out, int n) {
    __shared__ float partial[32];
    int lane = threadIdx.x & 31;
    int wid = threadIdx.x >> 5;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = i < n ? in[i] : 0.0f;
    v = warp_sum(v);
    if (lane == 0) partial[wid] = v;
    __syncthreads();
    v = threadIdx.x < blockDim.x / 32 ? partial[lane] : 0.0f;
    if (wid == 0) v = warp_sum(v);
    if (threadIdx.x == 0) atomicAdd(out, v);
}
