// The same copy twice: neighboring threads reading neighboring elements, and reading `stride` elements apart.
extern "C" __global__ void copy_coalesced(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i];
}

extern "C" __global__ void copy_strided(const float *in, float *out, int n, int stride) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[(int)((long long)i * stride % n)];
}
