// expect: safe
__global__ void dither(const unsigned char *in, unsigned *out, int w) {
    __shared__ unsigned rows[8];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
    if (threadIdx.x == 0) rows[threadIdx.y] = 0;
    __syncthreads();
    if (in[y * w + x] > 127) atomicOr(&rows[threadIdx.y], 1u << threadIdx.x);
    __syncthreads();
    if (threadIdx.x == 0) out[y * (w / 32) + blockIdx.x] = rows[threadIdx.y];
}
