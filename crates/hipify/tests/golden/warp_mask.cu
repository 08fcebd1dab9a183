__global__ void reduce(float *x) {
  x[threadIdx.x] += __shfl_down_sync(0xffffffff, x[threadIdx.x], 16);
}
