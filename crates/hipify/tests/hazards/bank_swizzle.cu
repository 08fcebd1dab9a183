// expect: safe
__global__ void swizzled(const float *in, float *out) {
    __shared__ float s[1024];
    int t = threadIdx.x;
    int bank = t & 31;
    int row = t >> 5;
    s[row * 32 + (bank ^ row)] = in[t];
    __syncthreads();
    out[t] = s[bank * 32 + (row ^ bank)];
}
