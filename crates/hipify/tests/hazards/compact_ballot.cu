// expect: WW0201@3, WW0207@5, WW0203@7, WW0204@8, WW0205@8, WW0204@10, WW0211@11
__global__ void compact(const int *in, int *out, int *count, int n) {
    const unsigned FULL_MASK = 0xffffffffu;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int lane = threadIdx.x % 32;
    bool keep = i < n && in[i] != 0;
    unsigned votes = __ballot_sync(FULL_MASK, keep);
    int rank = __popc(votes & ((1u << lane) - 1));
    int base = 0;
    if (lane == 0) base = atomicAdd(count, __popc(votes));
    base = __shfl_sync(FULL_MASK, base, 0);
    if (keep) out[base + rank] = in[i];
}
