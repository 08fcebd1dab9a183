// expect: WW0207@8, WW0207@9, WW0218@12, WW0203@17, WW0204@19, WW0204@20, WW0211@21, WW0204@22, WW0205@22
struct Graph {
    const int *offsets;
    const int *edges;
};

__global__ void expand(Graph g, const int *frontier, int size, unsigned *visited, int *next, int *next_size) {
    int warp_id = (blockIdx.x * blockDim.x + threadIdx.x) >> 5;
    int lane = threadIdx.x & 31;
    if (warp_id >= size) return;
    int v = frontier[warp_id];
    for (int e = g.offsets[v] + lane; e < g.offsets[v + 1]; e += 32) {
        int u = g.edges[e];
        unsigned bit = 1u << (u & 31);
        unsigned old = atomicOr(&visited[u >> 5], bit);
        bool fresh = !(old & bit);
        unsigned found = __ballot_sync(__activemask(), fresh);
        int base = 0;
        int first = __ffs(found) - 1;
        if (lane == first) base = atomicAdd(next_size, __popc(found));
        base = __shfl_sync(__activemask(), base, first);
        if (fresh) next[base + __popc(found & ((1 << lane) - 1))] = u;
    }
}
