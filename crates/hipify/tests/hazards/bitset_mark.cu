// expect: safe
// A bit set over vertices: the 32 is the width of a word of data.
__global__ void mark(const int *vertices, unsigned *bits, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int v = vertices[i];
    atomicOr(&bits[v / 32], 1u << (v % 32));
}

__global__ void count_marked(const unsigned *bits, int *total, int words) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < words) atomicAdd(total, __popc(bits[i]));
}
