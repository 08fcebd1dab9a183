// Function calls: not inlined, recursive, through pointers, with arguments on the stack.

static __device__ __noinline__ int twice_plus(int x, int y) { return 2 * x + y; }
static __device__ __noinline__ float norm(float3 v) { return sqrtf(v.x * v.x + v.y * v.y + v.z * v.z); }
extern "C" __global__ void call_simple(const int *in, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = twice_plus(in[i], twice_plus(i, in[i] / 2));
}
extern "C" __global__ void call_struct(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = norm(make_float3(in[3 * i], in[3 * i + 1], in[3 * i + 2]));
}
struct Big {
    long long a[6];
    double d;
};
static __device__ __noinline__ Big make_big(long long x, double d) {
    Big big;
    for (int j = 0; j < 6; j++) big.a[j] = x * (j + 1);
    big.d = d * 0.5;
    return big;
}
static __device__ __noinline__ double use_big(Big big, int j) { return (double)big.a[j] + big.d; }
extern "C" __global__ void call_big_struct(const int *in, double *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = use_big(make_big(in[i], i), i % 6);
}
static __device__ __noinline__ int many_arguments(int a, int b, int c, int d, int e, int f, int g, int h, int i, int j, int k, int l, int m,
                                                  int n, int o, int p, int q, int r, int s, int t, int u, int v, int w, int x, int y, int z,
                                                  long long first, double second, int third, int fourth, int fifth, int sixth,
                                                  int seventh) {
    return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i + 10 * j + 11 * k + 12 * l + 13 * m + 14 * n + 15 * o +
           16 * p + 17 * q + 18 * r + 19 * s + 20 * t + 21 * u + 22 * v + 23 * w + 24 * x + 25 * y + 26 * z + (int)(first >> 3) +
           (int)second + 29 * third + 30 * fourth + 31 * fifth + 32 * sixth + 33 * seventh;
}
extern "C" __global__ void call_many_arguments(const int *in, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int x = in[i];
    out[i] = many_arguments(x, x + 1, x + 2, x + 3, x + 4, x + 5, x + 6, x + 7, x + 8, x + 9, x + 10, x + 11, x + 12, x + 13,
                            x + 14, x + 15, x + 16, x + 17, x + 18, x + 19, x + 20, x + 21, x + 22, x + 23, x + 24, x + 25,
                            (long long)x << 4, x * 0.5, x - 1, x - 2, x - 3, x - 4, x - 5);
}
static __device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
extern "C" __global__ void call_recursive(const int *in, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = fibonacci(in[i]);
}
static __device__ int is_odd(int n);
static __device__ __noinline__ int is_even(int n) { return n == 0 ? 1 : is_odd(n - 1); }
static __device__ __noinline__ int is_odd(int n) { return n == 0 ? 0 : is_even(n - 1); }
extern "C" __global__ void call_mutual(const int *in, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = is_even(in[i]) * 2 + is_odd(in[i]);
}
typedef float (*Function)(float, float);
static __device__ __noinline__ float op_add(float a, float b) { return a + b; }
static __device__ __noinline__ float op_mul(float a, float b) { return a * b; }
static __device__ __noinline__ float op_min(float a, float b) { return fminf(a, b); }
static __device__ __noinline__ float op_div(float a, float b) { return a / b; }
__device__ Function table[4] = {op_add, op_mul, op_min, op_div};
extern "C" __global__ void call_pointers(const int *which, const float *a, const float *b, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = table[which[i]](a[i], b[i]);
}
extern "C" __global__ void call_uniform_pointer(const float *a, const float *b, float *out, int n, int which) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = table[which](a[i], b[i]);
}
struct Shape {
    int kind;
    float a, b;
};
static __device__ float area(const Shape &shape) {
    switch (shape.kind) {
        case 0: return shape.a * shape.a;
        case 1: return shape.a * shape.b;
        case 2: return 0.5f * shape.a * shape.b;
        case 3: return 3.0f * shape.a;
        case 4: return shape.a - shape.b;
        case 5: return fabsf(shape.b);
        case 6: return shape.b / 2.0f;
        case 7: return -shape.a;
        default: return 0.0f;
    }
}
extern "C" __global__ void switch_table(const Shape *shapes, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = area(shapes[i]);
}
struct Base {
    __device__ virtual int value(int x) const { return -x; }
};
struct Square : Base {
    __device__ int value(int x) const override { return x * x; }
};
struct Shift : Base {
    int by;
    __device__ Shift(int by) : by(by) {}
    __device__ int value(int x) const override { return x + by; }
};
extern "C" __global__ void call_virtual(const int *in, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    Square square;
    Shift shift(i);
    const Base *base = in[i] % 2 ? (const Base *)&square : (const Base *)&shift;
    out[i] = base->value(in[i]);
}
template <class F> static __device__ __noinline__ int apply(F f, int times, int x) {
    for (int t = 0; t < times; t++) x = f(x);
    return x;
}
extern "C" __global__ void call_lambda(const int *in, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = apply([=](int x) { return (x * 3 + i) % 1009; }, 1 + i % 5, in[i]);
}
// Keeps values across a call, and takes the address of a local.
static __device__ __noinline__ void divide(int a, int b, int *quotient, int *rest) {
    *quotient = a / b;
    *rest = a % b;
}
extern "C" __global__ void call_out_pointers(const int *a, const int *b, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int quotient, rest, before = a[i] ^ b[i];
    divide(a[i], b[i], &quotient, &rest);
    out[i] = quotient * 7 + rest + before;
}
