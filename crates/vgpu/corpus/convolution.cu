// Convolutions, pooling and transposes.

extern "C" __global__ void conv1d(const float *in, const float *weights, float *out, int n, int taps) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i + taps > n) return;
    float sum = 0.0f;
    for (int t = 0; t < taps; t++) sum += in[i + t] * weights[t];
    out[i] = sum;
}
// in: channels x height x width, weights: filters x channels x 3 x 3, padded by one.
extern "C" __global__ void conv2d(const float *in, const float *weights, const float *bias, float *out, int channels, int height,
                                  int width) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, filter = blockIdx.z;
    if (x >= width || y >= height) return;
    float sum = bias[filter];
    for (int c = 0; c < channels; c++)
        for (int dy = -1; dy <= 1; dy++)
            for (int dx = -1; dx <= 1; dx++) {
                int v = y + dy, u = x + dx;
                if (u >= 0 && u < width && v >= 0 && v < height)
                    sum += in[(c * height + v) * width + u] * weights[((filter * channels + c) * 3 + dy + 1) * 3 + dx + 1];
            }
    out[(filter * height + y) * width + x] = sum;
}
// A tile with its halo in shared memory; 16 x 16 threads, one channel, 5 x 5.
extern "C" __global__ void conv2d_tiled(const float *in, const float *weights, float *out, int height, int width) {
    __shared__ float tile[20][21];
    __shared__ float filter[25];
    int left = blockIdx.x * 16 - 2, top = blockIdx.y * 16 - 2, t = threadIdx.y * 16 + threadIdx.x;
    if (t < 25) filter[t] = weights[t];
    for (int e = t; e < 400; e += 256) {
        int y = top + e / 20, x = left + e % 20;
        tile[e / 20][e % 20] = x >= 0 && x < width && y >= 0 && y < height ? in[y * width + x] : 0.0f;
    }
    __syncthreads();
    int x = left + 2 + threadIdx.x, y = top + 2 + threadIdx.y;
    if (x >= width || y >= height) return;
    float sum = 0.0f;
    for (int dy = 0; dy < 5; dy++)
        for (int dx = 0; dx < 5; dx++) sum += tile[threadIdx.y + dy][threadIdx.x + dx] * filter[dy * 5 + dx];
    out[y * width + x] = sum;
}
extern "C" __global__ void depthwise_i8(const signed char *in, const signed char *weights, int *out, int channels, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, c = blockIdx.y;
    if (i >= n) return;
    int sum = 0;
    for (int t = -1; t <= 1; t++)
        if (i + t >= 0 && i + t < n) sum += in[c * n + i + t] * weights[c * 3 + t + 1];
    out[c * n + i] = sum;
}
extern "C" __global__ void maxpool2d(const float *in, float *out, int height, int width) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width / 2 || y >= height / 2) return;
    const float *p = in + 2 * y * width + 2 * x;
    out[y * (width / 2) + x] = fmaxf(fmaxf(p[0], p[1]), fmaxf(p[width], p[width + 1]));
}
extern "C" __global__ void im2col(const float *in, float *out, int height, int width) {
    int e = blockIdx.x * blockDim.x + threadIdx.x;
    if (e >= height * width * 9) return;
    int tap = e / (height * width), place = e % (height * width);
    int y = place / width + tap / 3 - 1, x = place % width + tap % 3 - 1;
    out[e] = x >= 0 && x < width && y >= 0 && y < height ? in[y * width + x] : 0.0f;
}
extern "C" __global__ void transpose_naive_u8(const unsigned char *in, unsigned char *out, int rows, int columns) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < columns && y < rows) out[x * rows + y] = in[y * columns + x];
}
template <class T> static __device__ void transpose(const T *in, T *out, int rows, int columns) {
    __shared__ T tile[32][33];
    int x = blockIdx.x * 32 + threadIdx.x;
    for (int y = threadIdx.y; y < 32; y += 8)
        if (x < columns && blockIdx.y * 32 + y < rows) tile[y][threadIdx.x] = in[(blockIdx.y * 32 + y) * columns + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x;
    for (int y = threadIdx.y; y < 32; y += 8)
        if (x < rows && blockIdx.x * 32 + y < columns) out[(blockIdx.x * 32 + y) * rows + x] = tile[threadIdx.x][y];
}
extern "C" __global__ void transpose_tiled_f32(const float *in, float *out, int rows, int columns) { transpose(in, out, rows, columns); }
extern "C" __global__ void transpose_tiled_f64(const double *in, double *out, int rows, int columns) { transpose(in, out, rows, columns); }
extern "C" __global__ void transpose_tiled_u16(const unsigned short *in, unsigned short *out, int rows, int columns) {
    transpose(in, out, rows, columns);
}
// Dimensions a, b, c become c, a, b.
extern "C" __global__ void permute3(const int *in, int *out, int a, int b, int c) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a * b * c) return;
    int z = i % c, y = i / c % b, x = i / c / b;
    out[(z * a + x) * b + y] = in[i];
}
