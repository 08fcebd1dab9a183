// expect: safe
#include <vector>
int rounded(int n) { return (n + 31) / 32 * 32; }

void launch(const float *x, float *y, int n, cudaStream_t stream) {
    dim3 block(32, 8);
    dim3 grid((n + 31) / 32, (n + 7) / 8);
    unsigned crc = 0xffffffff;
    for (int i = 0; i < 32; ++i) crc = (crc >> 1) ^ (0xEDB88320u & (0u - (crc & 1)));
    std::vector<unsigned> words((n + 31) >> 5, 0xffffffffu);
    kernel<<<grid, block, 32 * sizeof(float), stream>>>(x, y, n);
}
