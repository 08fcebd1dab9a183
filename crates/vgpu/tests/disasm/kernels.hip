// Kernels whose code has something of every encoding. Compiled without any header.
#define GLOBAL extern "C" __attribute__((global, amdgpu_flat_work_group_size(1, 256))) void
#define DEVICE __attribute__((device))
#define SHARED __attribute__((shared))

typedef float float4 __attribute__((ext_vector_type(4)));
typedef float float16 __attribute__((ext_vector_type(16)));
typedef float float32 __attribute__((ext_vector_type(32)));
typedef _Float16 half;
typedef _Float16 half2 __attribute__((ext_vector_type(2)));
typedef _Float16 half4 __attribute__((ext_vector_type(4)));
typedef unsigned char byte;

DEVICE static unsigned lane() { return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0)); }
DEVICE static unsigned index() { return __builtin_amdgcn_workgroup_id_x() * 256 + __builtin_amdgcn_workitem_id_x(); }

DEVICE __attribute__((noinline)) float called(float x, int n) {
    for (int i = 0; i < n; i++) x = x * x + 0.15915494f;
    return x;
}

GLOBAL floats(float *a, const float *b, int n) {
    unsigned i = index();
    if (i >= n) return;
    float x = b[i];
    for (int k = 0; k < n; k++) x = __builtin_fmaf(x, b[k], -1.0f) / (b[k] + 3.25f);
    a[i] = __builtin_sqrtf(__builtin_fabsf(x)) + called(x, n);
}

GLOBAL doubles(double *a, const double *b, long n) {
    unsigned i = index();
    double x = b[i] * 0.5 - 4.0;
    for (long k = 0; k < n; k++) x = __builtin_fma(x, b[k], 1.0 / b[k + 1]);
    a[i] = __builtin_floor(x) + (double)(long)x;
}

GLOBAL halves(half *a, const half *b, half2 *c) {
    unsigned i = index();
    half x = b[i] * (half)2.0 + (half)0.333;
    half2 y = c[i] * c[i + 1] + c[i + 2];
    a[i] = x / b[i + 1];
    c[i] = y;
    a[i + 7] = (half)((float)x + 1.5f);
}

GLOBAL bytes(byte *a, const byte *b, unsigned short *c, unsigned *d) {
    unsigned i = index();
    unsigned w = d[i];
    a[i] = (byte)((w & 255) + (w >> 8 & 255) * (w >> 16 & 255) - (w >> 24)) + b[i];
    c[i] = c[i] * (c[i + 3] + 77) >> 3;
    d[i] = __builtin_amdgcn_perm(w, d[i + 1], 0x07060504) + __builtin_popcount(w) + __builtin_clz(w | 1);
}

GLOBAL longs(long *a, const unsigned long *b, unsigned long n) {
    unsigned i = index();
    unsigned long x = b[i];
    while (x > n) x = x / n + (x << 3) % 1000003 + (x ^ 0x123456789abcdefUL);
    a[i] = (long)x >> (b[i + 1] & 63);
}

GLOBAL lanes(int *a, float *f) {
    int x = a[lane()];
    x += __builtin_amdgcn_update_dpp(0, x, 0x111, 0xf, 0xf, false);
#ifdef __GFX9__
    x += __builtin_amdgcn_update_dpp(7, x, 0x142, 0xa, 0xf, true);
#else
    x += __builtin_amdgcn_update_dpp(7, x, 0x153, 0xa, 0xf, true);
    x += __builtin_amdgcn_mov_dpp8(x, 0x053977);
    x += __builtin_amdgcn_permlanex16(x, x, 0x76543210, 0xfedcba98, true, false);
#endif
    x += __builtin_amdgcn_mov_dpp(x, 0x1b, 0xf, 0xf, true);
    x += __builtin_amdgcn_ds_swizzle(x, 0x401f);
    x += __builtin_amdgcn_ds_bpermute(4 * (lane() ^ 5), x);
    x += __builtin_amdgcn_readlane(x, 9) + __builtin_amdgcn_readfirstlane(x);
    unsigned long vote = __builtin_amdgcn_uicmp(x, 3, 33);
    a[lane()] = x + (int)(vote >> 7);
}

GLOBAL shared(float *a, int *counter, double *d) {
    SHARED static float tile[256];
    SHARED static double wide[64];
    unsigned t = __builtin_amdgcn_workitem_id_x();
    tile[t] = a[index()];
    wide[t & 63] = d[t];
    __builtin_amdgcn_s_barrier();
    float sum = 0;
    for (int k = 0; k < 256; k += 2) sum += tile[k] * tile[k + 1 ^ t & 3];
    __atomic_fetch_add(counter, (int)sum, __ATOMIC_RELAXED);
    int seen = __atomic_fetch_add(counter + 1, 1, __ATOMIC_SEQ_CST);
    int other = 5;
    __atomic_compare_exchange_n(counter + 2, &other, seen, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
    a[index()] = sum + other;
    d[t] = wide[63 - (t & 63)] + wide[t & 31];
}

GLOBAL stack(int *a, const int *b, int n) {
    int own[64];
    for (int k = 0; k < 64; k++) own[k] = b[k] * n;
    for (int k = 0; k < n; k++) own[own[k] & 63] += k;
    a[index()] = own[n & 63] + own[(n >> 3) & 63];
}

#if defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx942__)
GLOBAL matrices(float *a, half4 *h) {
    unsigned t = lane();
    float32 big;
    for (int k = 0; k < 32; k++) big[k] = a[t + k * 64];
    big = __builtin_amdgcn_mfma_f32_32x32x1f32(a[t], a[t + 64], big, 1, 2, 3);
    float16 mid;
    for (int k = 0; k < 16; k++) mid[k] = big[k] + big[k + 16];
    mid = __builtin_amdgcn_mfma_f32_32x32x8f16(h[t], h[t + 64], mid, 0, 0, 0);
    float4 small = {mid[0], mid[5], mid[10], mid[15]};
    small = __builtin_amdgcn_mfma_f32_16x16x16f16(h[t + 1], h[t + 65], small, 0, 0, 0);
    for (int k = 0; k < 4; k++) a[t + k] = small[k];
}
#elif defined(__GFX11__) || defined(__GFX12__)
#if defined(__GFX11__)
#define INPUT 16
#define WMMA(size, type) __builtin_amdgcn_wmma_##type##_16x16x16_f16_w##size
#else
#define INPUT 8 * 32 / __AMDGCN_WAVEFRONT_SIZE__
#define WMMA(size, type) __builtin_amdgcn_wmma_##type##_16x16x16_f16_w##size##_gfx12
#endif
typedef float result __attribute__((ext_vector_type(256 / __AMDGCN_WAVEFRONT_SIZE__)));
typedef _Float16 input __attribute__((ext_vector_type(INPUT)));
GLOBAL matrices(result *a, input *h) {
    unsigned t = lane();
#if __AMDGCN_WAVEFRONT_SIZE__ == 32
    a[t] = WMMA(32, f32)(h[t], h[t + 64], a[t]);
#else
    a[t] = WMMA(64, f32)(h[t], h[t + 64], a[t]);
#endif
}
#endif

GLOBAL waits(unsigned long *a) {
    a[0] = __builtin_readcyclecounter();
    __builtin_amdgcn_s_sleep(3);
    __builtin_amdgcn_s_setprio(2);
    a[1] = __builtin_amdgcn_s_getreg(0xf801);
    __builtin_amdgcn_s_setreg(0x1881, 3);
    __builtin_amdgcn_s_sendmsg(1, 0);
    __builtin_trap();
}
