// Words by a hash of their place: random bits, or floats that look like a normal distribution's.

__device__ inline unsigned int mixed(unsigned int x) {
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

extern "C" __global__ void random_words(unsigned int *out, unsigned long long n, unsigned int normal) {
    const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        const unsigned int a = mixed((unsigned int)i * 2u + 1u ^ (unsigned int)(i >> 31) * 0x9e3779b9u);
        if (!normal) {
            out[i] = a;
            continue;
        }
        // Four bytes and four more have a bell's shape.
        const unsigned int b = mixed(a ^ 0x85ebca6bu);
        int sum = 0;
        for (int k = 0; k < 32; k += 8) sum += (int)(a >> k & 255u) + (int)(b >> k & 255u);
        const float fine = (float)(mixed(b) & 0xffffu) * (1.0f / 65536.0f);
        out[i] = __float_as_uint(((float)(sum - 1020) + fine) * (1.0f / 209.0f));
    }
}
