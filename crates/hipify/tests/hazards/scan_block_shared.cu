// expect: safe
// Hillis and Steele in shared memory: no warps at all.
__global__ void block_scan(int *data) {
    __shared__ int s[2][256];
    int tid = threadIdx.x, cur = 0;
    s[0][tid] = data[tid];
    __syncthreads();
    for (int d = 1; d < 256; d <<= 1) {
        s[1 - cur][tid] = s[cur][tid] + (tid >= d ? s[cur][tid - d] : 0);
        cur = 1 - cur;
        __syncthreads();
    }
    data[tid] = s[cur][tid];
}
