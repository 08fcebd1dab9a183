// expect: safe
__device__ unsigned crc32(const unsigned char *p, int n) {
    unsigned c = 0xffffffffu;
    for (int i = 0; i < n; ++i) {
        c ^= p[i];
        for (int k = 0; k < 8; ++k) c = c & 1 ? (c >> 1) ^ 0xedb88320u : c >> 1;
    }
    return ~c;
}
__constant__ unsigned low_mask = 0x1f;
__global__ void run(const unsigned char *p, unsigned *out) { out[threadIdx.x] = crc32(p, 32) & low_mask; }
