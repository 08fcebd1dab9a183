// expect: WW0203@6, WW0203@7, WW0204@8, WW0207@9, WW0204@10
__global__ void histogram_match(const int *keys, int *bins, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int key = keys[i];
    unsigned active = __activemask();
    unsigned peers = __match_any_sync(active, key);
    int leader = __ffs(peers) - 1;
    int lane = threadIdx.x & 31;
    if (lane == leader) atomicAdd(&bins[key], __popc(peers));
}
