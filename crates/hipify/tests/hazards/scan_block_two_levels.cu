// expect: WW0210@3, WW0207@13, WW0207@14, WW0207@17
__device__ int warp_inclusive_scan(int v, int lane) {
    for (int d = 1; d <= 16; d *= 2) {
        int t = __shfl_up_sync(~0ull, v, d);
        if (lane >= d) v += t;
    }
    return v;
}

__global__ void block_scan(int *data, int n) {
    __shared__ int sums[32];
    const int tid = threadIdx.x;
    const int lane = tid & 31;
    const int wid = tid >> 5;
    int v = tid < n ? data[tid] : 0;
    v = warp_inclusive_scan(v, lane);
    if (lane == 31) sums[wid] = v;
    __syncthreads();
    if (wid == 0) sums[lane] = warp_inclusive_scan(sums[lane], lane);
    __syncthreads();
    if (wid > 0) v += sums[wid - 1];
    if (tid < n) data[tid] = v;
}
