// expect: safe
__global__ void expand(const int *offsets, const int *edges, const unsigned *frontier, unsigned *next, int n) {
    int v = blockIdx.x * blockDim.x + threadIdx.x;
    if (v >= n) return;
    if (!((frontier[v >> 5] >> (v & 31)) & 1)) return;
    for (int e = offsets[v]; e < offsets[v + 1]; ++e) {
        int u = edges[e];
        atomicOr(&next[u >> 5], 1u << (u & 31));
    }
}
