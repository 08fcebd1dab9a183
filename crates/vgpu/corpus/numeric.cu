// Long chains of 32-bit, 64-bit and f64 operations.
#include "elementwise.cuh"

static __device__ unsigned int rotate(unsigned int x, int by) { return (x >> by) | (x << (32 - by)); }
__constant__ unsigned int sha_keys[64];
// SHA-256's compression of one block of 16 words per thread, from its initial state.
extern "C" __global__ void sha256(const unsigned int *in, unsigned int *out, int n) {
    int i = INDEX;
    if (i >= n) return;
    unsigned int w[64], h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}, v[8];
    for (int t = 0; t < 16; t++) w[t] = in[i * 16 + t];
    for (int t = 16; t < 64; t++) {
        unsigned int a = rotate(w[t - 15], 7) ^ rotate(w[t - 15], 18) ^ (w[t - 15] >> 3);
        unsigned int b = rotate(w[t - 2], 17) ^ rotate(w[t - 2], 19) ^ (w[t - 2] >> 10);
        w[t] = w[t - 16] + a + w[t - 7] + b;
    }
    for (int j = 0; j < 8; j++) v[j] = h[j];
    for (int t = 0; t < 64; t++) {
        unsigned int e = rotate(v[4], 6) ^ rotate(v[4], 11) ^ rotate(v[4], 25), choice = (v[4] & v[5]) ^ (~v[4] & v[6]);
        unsigned int first = v[7] + e + choice + sha_keys[t] + w[t];
        unsigned int a = rotate(v[0], 2) ^ rotate(v[0], 13) ^ rotate(v[0], 22), majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
        for (int j = 7; j > 0; j--) v[j] = v[j - 1];
        v[4] += first;
        v[0] = first + a + majority;
    }
    for (int j = 0; j < 8; j++) out[i * 8 + j] = h[j] + v[j];
}
extern "C" __global__ void crc32(const unsigned char *in, unsigned int *out, int length, int n) {
    int i = INDEX;
    if (i >= n) return;
    unsigned int crc = ~0u;
    for (int p = 0; p < length; p++) {
        crc ^= in[i * length + p];
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >> 1) ^ 0xedb88320u : crc >> 1;
    }
    out[i] = ~crc;
}
extern "C" __global__ void xorshift(const unsigned long long *in, unsigned long long *out, int rounds, int n) {
    int i = INDEX;
    if (i >= n) return;
    unsigned long long x = in[i];
    for (int r = 0; r < rounds; r++) {
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
    }
    out[i] = x * 2685821657736338717ull;
}
// Powers modulo a number below 2^63, by doubling.
static __device__ unsigned long long times_mod(unsigned long long a, unsigned long long b, unsigned long long m) {
    unsigned long long sum = 0;
    for (a %= m; b; b >>= 1) {
        if (b & 1) sum = (sum + a) % m;
        a = (a + a) % m;
    }
    return sum;
}
extern "C" __global__ void power_mod(const unsigned long long *base, const unsigned int *exponent, const unsigned long long *modulus,
                                     unsigned long long *out, int n) {
    int i = INDEX;
    if (i >= n) return;
    unsigned long long result = 1, square = base[i] % modulus[i];
    for (unsigned int e = exponent[i]; e; e >>= 1) {
        if (e & 1) result = times_mod(result, square, modulus[i]);
        square = times_mod(square, square, modulus[i]);
    }
    out[i] = result;
}
extern "C" __global__ void gcd_i64(const long long *a, const long long *b, long long *out, int n) {
    int i = INDEX;
    if (i >= n) return;
    long long x = a[i], y = b[i];
    while (y) {
        long long rest = x % y;
        x = y;
        y = rest;
    }
    out[i] = x < 0 ? -x : x;
}
BINARY_TO(product_128, unsigned long long, unsigned long long, (unsigned long long)(((unsigned __int128)a * b) >> 37))
BINARY_TO(difference_128, long long, int, ((__int128)a << 20) - ((__int128)b << 19) > 0 ? 1 : -1)
extern "C" __global__ void newton_sqrt_f64(const double *in, double *out, int n) {
    int i = INDEX;
    if (i >= n) return;
    double x = in[i] > 1.0 ? in[i] : 1.0;
    for (int step = 0; step < 60; step++) x = 0.5 * (x + in[i] / x);
    out[i] = x;
}
extern "C" __global__ void horner_f64(const double *in, const double *coefficients, double *out, int degree, int n) {
    int i = INDEX;
    if (i >= n) return;
    double sum = 0.0;
    for (int j = degree; j >= 0; j--) sum = fma(sum, in[i], coefficients[j]);
    out[i] = sum;
}
// Compensated sum of a row: wrong if operations are reordered.
extern "C" __global__ void kahan_f32(const float *in, float *out, int columns, int rows) {
    int row = INDEX;
    if (row >= rows) return;
    float sum = 0.0f, lost = 0.0f;
    for (int i = 0; i < columns; i++) {
        float term = __fsub_rn(in[row * columns + i], lost), next = __fadd_rn(sum, term);
        lost = __fsub_rn(__fsub_rn(next, sum), term);
        sum = next;
    }
    out[row] = sum;
}
// Gravity of n bodies.
extern "C" __global__ void nbody_f64(const double *x, const double *y, const double *mass, double *force, int n) {
    int i = INDEX;
    if (i >= n) return;
    double sum = 0.0;
    for (int j = 0; j < n; j++) {
        double dx = x[j] - x[i], dy = y[j] - y[i], d = dx * dx + dy * dy + 0.01;
        sum += mass[j] * dx / (d * sqrt(d));
    }
    force[i] = sum;
}
extern "C" __global__ void denormals_f32(const float *in, float *out, int n) {
    int i = INDEX;
    if (i < n) out[i] = in[i] * 0.5f + in[i];
}
extern "C" __global__ void denormals_f64(const double *in, double *out, int n) {
    int i = INDEX;
    if (i < n) out[i] = in[i] * 0.5;
}
// Bytes, nibbles and scales: a dot product of 4-bit weights.
extern "C" __global__ void quantized_dot(const unsigned char *packed, const float *scales, const float *x, float *out,
                                         int blocks, int rows) {
    int row = INDEX;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int b = 0; b < blocks; b++) {
        float part = 0.0f;
        for (int j = 0; j < 16; j++) {
            unsigned char both = packed[(row * blocks + b) * 16 + j];
            part += (float)((both & 15) - 8) * x[b * 32 + j] + (float)((both >> 4) - 8) * x[b * 32 + 16 + j];
        }
        sum += part * scales[row * blocks + b];
    }
    out[row] = sum;
}
extern "C" __global__ void julian_day(const int *year, const int *month, const int *day, int *out, int n) {
    int i = INDEX;
    if (i >= n) return;
    int a = (14 - month[i]) / 12, y = year[i] + 4800 - a, m = month[i] + 12 * a - 3;
    out[i] = day[i] + (153 * m + 2) / 5 + 365 * y + y / 4 - y / 100 + y / 400 - 32045;
}
