// out[i] = 2 * i: the smallest kernel that shows every thread ran once.
extern "C" __global__ void index_times_two(int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2 * i;
}
