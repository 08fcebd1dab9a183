// expect: safe
__global__ void blur(const float *in, float *out, int n) {
    __shared__ float s[256 + 64];
    int t = threadIdx.x;
    int i = blockIdx.x * 256 + t;
    s[t] = in[i];
    if (t < 64) s[t + 256] = in[i + 256];
    __syncthreads();
    out[i] = s[t] + s[t + 32] + s[t + 16] * 0.5f;
}
