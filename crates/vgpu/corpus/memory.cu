// Memory spaces and access widths.

__constant__ float coefficients[8];
__constant__ int lookup[256];
__device__ int counter_start;
__device__ double offsets[4] = {0.5, 1.5, 2.5, 3.5};
__device__ unsigned int written[64];
static __device__ const int primes[10] = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29};

// Coefficients from the host, the same for all lanes.
extern "C" __global__ void constant_polynomial(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = 0.0f;
    for (int j = 7; j >= 0; j--) sum = fmaf(sum, in[i], coefficients[j]);
    out[i] = sum;
}
// An index of each lane's own.
extern "C" __global__ void constant_lookup(const unsigned char *in, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = lookup[in[i]];
}
// A variable that the host set, and one with its initial value.
extern "C" __global__ void device_globals(const double *in, double *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i] + offsets[i % 4] * counter_start;
}
// Written through an argument and read back through the variable's address.
extern "C" __global__ void device_global_written(const unsigned int *in, unsigned int *out) {
    int t = threadIdx.x;
    written[t] = in[t] * 3u;
    __syncthreads();
    out[t] = written[(t + 17) % 64];
}
extern "C" __global__ void static_table(const int *in, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = primes[in[i] % 10] * in[i];
}
// Dynamic shared memory, cut into arrays of three types.
extern "C" __global__ void dynamic_shared(const int *in, double *out) {
    extern __shared__ double room[];
    int t = threadIdx.x, size = blockDim.x;
    double *halves = room;
    int *whole = (int *)(room + size);
    unsigned char *low = (unsigned char *)(whole + size);
    halves[t] = in[t] * 0.5;
    whole[t] = in[t];
    low[t] = (unsigned char)in[t];
    __syncthreads();
    int other = size - 1 - t;
    out[t] = halves[other] + whole[other] + low[other];
}
// Static and dynamic shared memory together.
extern "C" __global__ void both_shared(const float *in, float *out) {
    extern __shared__ float more[];
    __shared__ float fixed[64];
    int t = threadIdx.x;
    fixed[t] = in[t];
    more[t] = -in[t];
    __syncthreads();
    out[t] = fixed[63 - t] + 2.0f * more[(t + 1) % 64];
}
struct Settings {
    char flag;
    short offset;
    int count;
    double scale;
    float weights[5];
    long long big;
};
extern "C" __global__ void struct_argument(const float *in, double *out, Settings settings, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double x = in[i] * settings.scale + settings.weights[i % 5] + settings.offset;
    out[i] = settings.flag ? x + (double)settings.big : x - settings.count;
}
// Arguments of every size, unaligned to each other.
extern "C" __global__ void mixed_arguments(char a, long long b, short c, double d, unsigned char e, float f, int *out, bool g,
                                           unsigned short h,
                                           unsigned long long i) {
    int t = threadIdx.x;
    long long values[] = {a, b, c, (long long)d, e, (long long)f, g, h, (long long)i};
    if (t < 9) out[t] = (int)values[t];
}
// 128-bit, 64-bit, 96-bit accesses.
extern "C" __global__ void vector_access(const float4 *in, float2 *pairs, float3 *triples, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 v = in[i];
    pairs[i] = make_float2(v.x + v.y, v.z + v.w);
    triples[i] = make_float3(v.w, v.x, v.y);
}
extern "C" __global__ void vector_integers(const int4 *in, uchar4 *bytes, short2 *shorts, ulonglong2 *wide, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int4 v = in[i];
    bytes[i] = make_uchar4((unsigned char)v.x, (unsigned char)v.y, (unsigned char)v.z, (unsigned char)v.w);
    shorts[i] = make_short2((short)v.x, (short)(v.y >> 16));
    wide[i] = make_ulonglong2((unsigned long long)(unsigned int)v.z << 8, (unsigned int)v.w);
}
// Words at any byte.
extern "C" __global__ void unaligned_words(const unsigned char *in, unsigned int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned int word;
    memcpy(&word, in + 3 * i + 1, 4);
    out[i] = word;
}
extern "C" __global__ void gather_scatter(const int *index, const long long *in, long long *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[index[i]] = in[index[n - 1 - i]] - i;
}
// A structure of mixed fields, read and written in memory.
struct Particle {
    float x, y, z;
    unsigned char kind;
    short charge;
    double mass;
};
extern "C" __global__ void particles(Particle *all, int n, float dt) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    Particle p = all[i];
    p.x += dt * p.charge;
    p.mass *= 2.0;
    p.kind ^= 0x5a;
    p.charge = (short)(p.charge - p.kind);
    all[i] = p;
}
// Through restrict and the read-only cache.
extern "C" __global__ void read_only(const double *__restrict__ in, double *__restrict__ out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = __ldg(&in[i]) + __ldg(&in[(i + 1) % n]);
}
extern "C" __global__ void fill_bytes(unsigned char *out, int n, int value) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) memset(out + 5 * i, value + i, 5);
}
