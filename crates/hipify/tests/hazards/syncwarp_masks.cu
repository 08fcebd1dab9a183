// expect: WW0201@5, WW0201@8, WW0201@9
__global__ void stage(float *x) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    __syncwarp(0xffffffff);
    x[threadIdx.x] = s[threadIdx.x ^ 1];
    __syncwarp();
    if (__all_sync(-1, x[threadIdx.x] > 0)) x[0] = 1;
    if (__any_sync(~0u, x[threadIdx.x] > 0)) x[1] = 1;
}
