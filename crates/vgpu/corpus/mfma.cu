// Matrix cores: d = a b + c with one wave, k in several steps. Matrices lie row by row; each kernel spreads them over the lanes as the
// instruction wants them, so that its result is a plain product.

typedef float f32x2 __attribute__((ext_vector_type(2)));
typedef float f32x4 __attribute__((ext_vector_type(4)));
typedef float f32x16 __attribute__((ext_vector_type(16)));
typedef float f32x32 __attribute__((ext_vector_type(32)));
typedef double f64x4 __attribute__((ext_vector_type(4)));
typedef int i32x4 __attribute__((ext_vector_type(4)));
typedef int i32x16 __attribute__((ext_vector_type(16)));
typedef _Float16 f16x4 __attribute__((ext_vector_type(4)));
typedef short i16x2 __attribute__((ext_vector_type(2)));
typedef short i16x4 __attribute__((ext_vector_type(4)));

// What a lane holds of a and b: `each` elements that follow each other in k.
template <class Operand, class T, int each> static __device__ Operand gather(const T *from, int stride) {
    T part[each];
    for (int j = 0; j < each; j++) part[j] = from[j * stride];
    Operand operand;
    static_assert(sizeof(operand) == sizeof(part), "an operand is its elements");
    __builtin_memcpy(&operand, part, sizeof(operand));
    return operand;
}
// The row of a result in register r, of 16 x 16 and of 32 x 32.
static __device__ int row16(int lane, int r) { return lane / 16 * 4 + r; }
static __device__ int row16_f64(int lane, int r) { return lane / 16 + 4 * r; }
static __device__ int row32(int lane, int r) { return r / 4 * 8 + lane / 32 * 4 + r % 4; }

#define MFMA(name, builtin, size, depth, T, Operand, each, S, Sums, registers, row)                                                \
    extern "C" __global__ __launch_bounds__(64) void name(const T *a, const T *b, const S *c, S *d, int k) {                       \
        int lane = threadIdx.x, own = lane % size, group = lane / size;                                                            \
        Sums sums;                                                                                                                 \
        for (int r = 0; r < registers; r++) sums[r] = c[row(lane, r) * size + own];                                                \
        for (int base = 0; base < k; base += depth) {                                                                              \
            int first = base + group * each;                                                                                       \
            Operand left = gather<Operand, T, each>(a + own * k + first, 1);                                                       \
            Operand right = gather<Operand, T, each>(b + first * size + own, size);                                                \
            sums = builtin(left, right, sums, 0, 0, 0);                                                                            \
        }                                                                                                                          \
        for (int r = 0; r < registers; r++) d[row(lane, r) * size + own] = sums[r];                                                \
    }

MFMA(mfma_f32_16x16x4_f32, __builtin_amdgcn_mfma_f32_16x16x4f32, 16, 4, float, float, 1, float, f32x4, 4, row16)
MFMA(mfma_f32_32x32x2_f32, __builtin_amdgcn_mfma_f32_32x32x2f32, 32, 2, float, float, 1, float, f32x16, 16, row32)
MFMA(mfma_f32_16x16x16_f16, __builtin_amdgcn_mfma_f32_16x16x16f16, 16, 16, _Float16, f16x4, 4, float, f32x4, 4, row16)
MFMA(mfma_f32_32x32x8_f16, __builtin_amdgcn_mfma_f32_32x32x8f16, 32, 8, _Float16, f16x4, 4, float, f32x16, 16, row32)
#if defined(__gfx908__) || defined(__gfx90a__)
MFMA(mfma_f32_16x16x8_bf16, __builtin_amdgcn_mfma_f32_16x16x8bf16, 16, 8, short, i16x2, 2, float, f32x4, 4, row16)
MFMA(mfma_f32_32x32x4_bf16, __builtin_amdgcn_mfma_f32_32x32x4bf16, 32, 4, short, i16x2, 2, float, f32x16, 16, row32)
MFMA(mfma_i32_16x16x16_i8, __builtin_amdgcn_mfma_i32_16x16x16i8, 16, 16, signed char, int, 4, int, i32x4, 4, row16)
MFMA(mfma_i32_32x32x8_i8, __builtin_amdgcn_mfma_i32_32x32x8i8, 32, 8, signed char, int, 4, int, i32x16, 16, row32)
#endif
#if defined(__gfx90a__) || defined(__gfx942__)
MFMA(mfma_f32_16x16x16_bf16, __builtin_amdgcn_mfma_f32_16x16x16bf16_1k, 16, 16, short, i16x4, 4, float, f32x4, 4, row16)
MFMA(mfma_f32_32x32x8_bf16, __builtin_amdgcn_mfma_f32_32x32x8bf16_1k, 32, 8, short, i16x4, 4, float, f32x16, 16, row32)
MFMA(mfma_f64_16x16x4_f64, __builtin_amdgcn_mfma_f64_16x16x4f64, 16, 4, double, double, 1, double, f64x4, 4, row16_f64)
#endif
#if defined(__gfx942__)
MFMA(mfma_i32_16x16x32_i8, __builtin_amdgcn_mfma_i32_16x16x32_i8, 16, 32, signed char, long, 8, int, i32x4, 4, row16)
MFMA(mfma_i32_32x32x16_i8, __builtin_amdgcn_mfma_i32_32x32x16_i8, 32, 16, signed char, long, 8, int, i32x16, 16, row32)
MFMA(mfma_f32_16x16x8_xf32, __builtin_amdgcn_mfma_f32_16x16x8_xf32, 16, 8, float, f32x2, 2, float, f32x4, 4, row16)
MFMA(mfma_f32_32x32x4_xf32, __builtin_amdgcn_mfma_f32_32x32x4_xf32, 32, 4, float, f32x2, 2, float, f32x16, 16, row32)
MFMA(mfma_f32_16x16x32_fp8, __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8, 16, 32, unsigned char, long, 8, float, f32x4, 4, row16)
MFMA(mfma_f32_16x16x32_bf8, __builtin_amdgcn_mfma_f32_16x16x32_bf8_bf8, 16, 32, unsigned char, long, 8, float, f32x4, 4, row16)
MFMA(mfma_f32_32x32x16_fp8_bf8, __builtin_amdgcn_mfma_f32_32x32x16_fp8_bf8, 32, 16, unsigned char, long, 8, float, f32x16, 16, row32)
#endif

// Several small products at once: block n has rows and columns of its own, and k is 1.
extern "C" __global__ __launch_bounds__(64) void mfma_f32_32x32x1_2b(const float *a, const float *b, const float *c, float *d) {
    int lane = threadIdx.x;
    f32x32 sums;
    for (int r = 0; r < 32; r++) sums[r] = c[(r / 16 * 32 + row32(lane, r % 16)) * 32 + lane % 32];
    sums = __builtin_amdgcn_mfma_f32_32x32x1f32(a[lane], b[lane], sums, 0, 0, 0);
    for (int r = 0; r < 32; r++) d[(r / 16 * 32 + row32(lane, r % 16)) * 32 + lane % 32] = sums[r];
}
extern "C" __global__ __launch_bounds__(64) void mfma_f32_16x16x1_4b(const float *a, const float *b, const float *c, float *d) {
    int lane = threadIdx.x;
    f32x16 sums;
    for (int r = 0; r < 16; r++) sums[r] = c[(r / 4 * 16 + row16(lane, r % 4)) * 16 + lane % 16];
    sums = __builtin_amdgcn_mfma_f32_16x16x1f32(a[lane], b[lane], sums, 0, 0, 0);
    for (int r = 0; r < 16; r++) d[(r / 4 * 16 + row16(lane, r % 4)) * 16 + lane % 16] = sums[r];
}
extern "C" __global__ __launch_bounds__(64) void mfma_f32_4x4x1_16b(const float *a, const float *b, const float *c, float *d) {
    int lane = threadIdx.x;
    f32x4 sums;
    for (int r = 0; r < 4; r++) sums[r] = c[(lane / 4 * 4 + r) * 4 + lane % 4];
    sums = __builtin_amdgcn_mfma_f32_4x4x1f32(a[lane], b[lane], sums, 0, 0, 0);
    for (int r = 0; r < 4; r++) d[(lane / 4 * 4 + r) * 4 + lane % 4] = sums[r];
}
#if defined(__gfx90a__) || defined(__gfx942__)
// Four products of 4 x 4 x 4: lane 16 k + 4 block + i of a and b, lane 16 row + 4 block + column of the result.
extern "C" __global__ __launch_bounds__(64) void mfma_f64_4x4x4_4b(const double *a, const double *b, const double *c, double *d) {
    int lane = threadIdx.x, block = lane / 4 % 4, own = lane % 4, group = lane / 16;
    double left = a[(block * 4 + own) * 4 + group], right = b[(block * 4 + group) * 4 + own];
    d[(block * 4 + group) * 4 + own] =
        __builtin_amdgcn_mfma_f64_4x4x4f64(left, right, c[(block * 4 + group) * 4 + own], 0, 0, 0);
}
#endif
// The whole of a matrix from tiles of the matrix core, two waves per block; sizes are multiples of 16, k of 4.
extern "C" __global__ void mfma_matmul_f32(const float *a, const float *b, float *c, int m, int n, int k) {
    int wave = (blockIdx.x * blockDim.x + threadIdx.x) / 64, lane = threadIdx.x % 64;
    int row = wave / (n / 16) * 16, column = wave % (n / 16) * 16;
    if (row >= m) return;
    f32x4 sums = {0, 0, 0, 0};
    for (int base = 0; base < k; base += 4) {
        float left = a[(row + lane % 16) * k + base + lane / 16], right = b[(base + lane / 16) * n + column + lane % 16];
        sums = __builtin_amdgcn_mfma_f32_16x16x4f32(left, right, sums, 0, 0, 0);
    }
    for (int r = 0; r < 4; r++) c[(row + row16(lane, r)) * n + column + lane % 16] = sums[r];
}
