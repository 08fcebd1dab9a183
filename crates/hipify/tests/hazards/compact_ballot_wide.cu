// expect: safe
__global__ void compact(const int *in, int *out, int *count, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int lane = threadIdx.x % warpSize;
    bool keep = i < n && in[i] != 0;
    unsigned long long votes = __ballot_sync(~0ull, keep);
    int rank = __popcll(votes & ((1ull << lane) - 1));
    int base = 0;
    if (lane == 0) base = atomicAdd(count, __popcll(votes));
    base = __shfl_sync(~0ull, base, 0);
    if (keep) out[base + rank] = in[i];
}
