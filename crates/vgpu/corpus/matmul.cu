// c[m][n] = a[m][k] b[k][n], tiles in shared memory, any sizes.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

#define TILE 16

static __device__ float wide(float x) { return x; }
static __device__ float wide(__half x) { return __half2float(x); }
static __device__ float wide(__nv_bfloat16 x) { return __bfloat162float(x); }
static __device__ int wide(signed char x) { return x; }
static __device__ double wide(double x) { return x; }
template <class T> struct Zero {
    static __device__ T value() { return (T)0; }
};
template <> struct Zero<__half> {
    static __device__ __half value() { return __float2half(0.0f); }
};
template <> struct Zero<__nv_bfloat16> {
    static __device__ __nv_bfloat16 value() { return __float2bfloat16(0.0f); }
};

template <class T, class S> static __device__ void tiled(const T *a, const T *b, S *c, int m, int n, int k) {
    __shared__ T left[TILE][TILE + 1];
    __shared__ T right[TILE][TILE + 1];
    int column = threadIdx.x, line = threadIdx.y;
    int i = blockIdx.y * TILE + line, j = blockIdx.x * TILE + column;
    S sum = 0;
    for (int base = 0; base < k; base += TILE) {
        left[line][column] = i < m && base + column < k ? a[i * k + base + column] : Zero<T>::value();
        right[line][column] = base + line < k && j < n ? b[(base + line) * n + j] : Zero<T>::value();
        __syncthreads();
        for (int p = 0; p < TILE; p++) sum += wide(left[line][p]) * wide(right[p][column]);
        __syncthreads();
    }
    if (i < m && j < n) c[i * n + j] = sum;
}
#define MATMUL(name, T, S)                                                                                                         \
    extern "C" __global__ void matmul_##name(const T *a, const T *b, S *c, int m, int n, int k) { tiled<T, S>(a, b, c, m, n, k); }
MATMUL(f32, float, float)
MATMUL(f64, double, double)
MATMUL(f16, __half, float)
MATMUL(bf16, __nv_bfloat16, float)
MATMUL(i8, signed char, int)

// Four by four results in the registers of each thread; 64 x 64 per block of 16 x 16 threads.
extern "C" __global__ void matmul_registers_f32(const float *a, const float *b, float *c, int m, int n, int k) {
    __shared__ float left[16][65];
    __shared__ float right[16][65];
    int t = threadIdx.y * 16 + threadIdx.x;
    int top = blockIdx.y * 64, side = blockIdx.x * 64;
    float sum[4][4] = {};
    for (int base = 0; base < k; base += 16) {
        for (int e = t; e < 1024; e += 256) {
            int row = e / 16, p = e % 16;
            left[p][row] = top + row < m && base + p < k ? a[(top + row) * k + base + p] : 0.0f;
            int q = e / 64, column = e % 64;
            right[q][column] = base + q < k && side + column < n ? b[(base + q) * n + side + column] : 0.0f;
        }
        __syncthreads();
        for (int p = 0; p < 16; p++)
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 4; j++) sum[i][j] += left[p][threadIdx.y * 4 + i] * right[p][threadIdx.x * 4 + j];
        __syncthreads();
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            int row = top + threadIdx.y * 4 + i, column = side + threadIdx.x * 4 + j;
            if (row < m && column < n) c[row * n + column] = sum[i][j];
        }
}
// Four 8-bit products at once; k counts words of four.
extern "C" __global__ void matmul_dp4a(const int *a, const int *b, int *c, int m, int n, int k) {
    int i = blockIdx.y * blockDim.y + threadIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x, sum = 0;
    if (i >= m || j >= n) return;
    for (int p = 0; p < k; p++) sum = __dp4a(a[i * k + p], b[j * k + p], sum);
    c[i * n + j] = sum;
}
// Pairs of halves, sums in f16 pairs, one thread per result.
extern "C" __global__ void matvec_half2(const __half2 *a, const __half2 *x, float *y, int m, int k) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= m) return;
    float sum = 0.0f;
    for (int p = 0; p < k; p++) {
        float2 u = __half22float2(a[i * k + p]), v = __half22float2(x[p]);
        sum += u.x * v.x + u.y * v.y;
    }
    y[i] = sum;
}
// CUDA's own matrix fragments: a group of 32 threads per 16 x 16 results; sizes are multiples of 16.
template <class T> static __device__ void fragments(const T *a, const T *b, float *c, int m, int n, int k) {
    using namespace nvcuda;
    int group = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    int row = group / (n / 16), column = group % (n / 16);
    if (row >= m / 16) return;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::row_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    for (int p = 0; p < k; p += 16) {
        wmma::load_matrix_sync(left, a + row * 16 * k + p, k);
        wmma::load_matrix_sync(right, b + p * n + column * 16, n);
        wmma::mma_sync(sum, left, right, sum);
    }
    wmma::store_matrix_sync(c + row * 16 * n + column * 16, sum, n, wmma::mem_row_major);
}
extern "C" __global__ void wmma_f16(const __half *a, const __half *b, float *c, int m, int n, int k) { fragments(a, b, c, m, n, k); }
extern "C" __global__ void wmma_bf16(const __nv_bfloat16 *a, const __nv_bfloat16 *b, float *c, int m, int n, int k) {
    fragments(a, b, c, m, n, k);
}
