// Stands in for rocBLAS on virtual devices, whose addresses are the host's: the functions that are called, by their header's shapes,
// and a product that is right rather than fast.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { F16 = 150, F32 = 151, F64 = 152, I8 = 160, I32 = 162, BF16 = 168 };

int warpwave_stands_in(void) { return 1; }
int rocblas_create_handle(void **handle) { return (*handle = calloc(1, 64)) ? 0 : 5; }
int rocblas_set_stream(void *handle, void *stream) { return handle && stream ? 0 : 1; }
int rocblas_set_workspace(void *handle, void *address, size_t size) { return handle && address && size ? 0 : 1; }

static double get(const void *base, int type, int64_t at) {
    float value;
    uint32_t bits;
    switch (type) {
    case F16: return (double)((const _Float16 *)base)[at];
    case F32: return ((const float *)base)[at];
    case F64: return ((const double *)base)[at];
    case I8: return ((const int8_t *)base)[at];
    case I32: return ((const int32_t *)base)[at];
    default: bits = (uint32_t)((const uint16_t *)base)[at] << 16; memcpy(&value, &bits, 4); return value;
    }
}

static void put(void *base, int type, int64_t at, double value) {
    float single = (float)value;
    uint32_t bits;
    switch (type) {
    case F16: ((_Float16 *)base)[at] = (_Float16)single; break;
    case F32: ((float *)base)[at] = single; break;
    case F64: ((double *)base)[at] = value; break;
    case I32: ((int32_t *)base)[at] = (int32_t)value; break;
    default: memcpy(&bits, &single, 4); ((uint16_t *)base)[at] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
}

int rocblas_gemm_strided_batched_ex(void *handle, int op_a, int op_b, int m, int n, int k, const void *alpha, const void *a, int a_type, int lda,
                                    int64_t stride_a, const void *b, int b_type, int ldb, int64_t stride_b, const void *beta, const void *c,
                                    int c_type, int ldc, int64_t stride_c, void *d, int d_type, int ldd, int64_t stride_d, int batches,
                                    int compute, int algorithm, int32_t solution, uint32_t flags) {
    int pairs = (a_type == I8 && c_type == I32 && compute == I32) || (a_type == F64 && c_type == F64 && compute == F64) ||
                ((a_type == F32 || a_type == F16 || a_type == BF16) && (c_type == a_type || c_type == F32) && compute == F32);
    if (!handle || a_type != b_type || c_type != d_type || !pairs) return 2;
    // What the library checks.
    if ((op_a != 111 && op_a != 112) || (op_b != 111 && op_b != 112) || algorithm != 0 || solution != 0 || flags != 0) return 11;
    if (lda < (op_a == 111 ? m : k) || ldb < (op_b == 111 ? k : n) || ldc < m || ldd < m) return 4;
    double factor = get(alpha, compute, 0), before = get(beta, compute, 0);
    for (int i = 0; i < batches; ++i) {
        for (int x = 0; x < m; ++x) {
            for (int y = 0; y < n; ++y) {
                double sum = 0;
                for (int z = 0; z < k; ++z) {
                    int64_t at_a = i * stride_a + (op_a == 111 ? x + (int64_t)z * lda : z + (int64_t)x * lda);
                    int64_t at_b = i * stride_b + (op_b == 111 ? z + (int64_t)y * ldb : y + (int64_t)z * ldb);
                    sum += get(a, a_type, at_a) * get(b, b_type, at_b);
                }
                sum *= factor;
                if (before != 0) sum += before * get(c, c_type, i * stride_c + x + (int64_t)y * ldc);
                put(d, d_type, i * stride_d + x + (int64_t)y * ldd, sum);
            }
        }
    }
    return 0;
}
