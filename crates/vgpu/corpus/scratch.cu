// Scratch memory: local arrays with dynamic indices, and register spills.

extern "C" __global__ void local_permute(const int *in, const int *order, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int local[16];
    for (int j = 0; j < 16; j++) local[order[j]] = in[i * 16 + j];
    for (int j = 0; j < 16; j++) out[i * 16 + j] = local[(j * 5 + i) % 16];
}
template <class T, int count> static __device__ void insertion_sort(const T *in, T *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    T local[count];
    for (int j = 0; j < count; j++) {
        T x = in[i * count + j];
        int place = j;
        while (place > 0 && local[place - 1] > x) {
            local[place] = local[place - 1];
            place--;
        }
        local[place] = x;
    }
    for (int j = 0; j < count; j++) out[i * count + j] = local[j];
}
extern "C" __global__ void local_sort_i32(const int *in, int *out, int n) { insertion_sort<int, 24>(in, out, n); }
extern "C" __global__ void local_sort_f64(const double *in, double *out, int n) { insertion_sort<double, 16>(in, out, n); }
extern "C" __global__ void local_sort_u8(const unsigned char *in, unsigned char *out, int n) { insertion_sort<unsigned char,
                                         33>(in, out, n); }
extern "C" __global__ void local_sort_i16(const short *in, short *out, int n) { insertion_sort<short, 19>(in, out, n); }

extern "C" __global__ void local_histogram(const unsigned char *in, unsigned int *out, int n, int length) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned int bins[32] = {};
    for (int j = 0; j < length; j++) bins[in[i * length + j] % 32]++;
    for (int j = 0; j < 32; j++) out[i * 32 + j] = bins[j];
}
// 96 live sums, more than there are registers: they spill.
extern "C" __global__ __launch_bounds__(1024) void many_sums(const float *in, float *out, int rounds) {
    float sum[96];
#pragma unroll
    for (int j = 0; j < 96; j++) sum[j] = (float)j;
    for (int r = 0; r < rounds; r++) {
        float x = in[(r * 64 + threadIdx.x) % 512];
#pragma unroll
        for (int j = 0; j < 96; j++) sum[j] = sum[j] * 0.5f + x * (float)(j % 7);
    }
    float total = 0.0f;
#pragma unroll
    for (int j = 0; j < 96; j++) total += sum[j] * (float)(j % 5 + 1);
    out[blockIdx.x * blockDim.x + threadIdx.x] = total;
}
extern "C" __global__ __launch_bounds__(1024) void many_doubles(const double *in, double *out, int rounds) {
    double sum[48];
#pragma unroll
    for (int j = 0; j < 48; j++) sum[j] = (double)j;
    for (int r = 0; r < rounds; r++) {
        double x = in[(r * 64 + threadIdx.x) % 512];
#pragma unroll
        for (int j = 0; j < 48; j++) sum[j] = fma(sum[j], 0.25, x * (double)(j % 5));
    }
    double total = 0.0;
#pragma unroll
    for (int j = 0; j < 48; j++) total = fma(total, 0.5, sum[j]);
    out[blockIdx.x * blockDim.x + threadIdx.x] = total;
}
// A small machine with a stack: 0 push, 1 add, 2 subtract, 3 multiply, 4 swap, 5 duplicate.
extern "C" __global__ void stack_machine(const int *program, const int *in, int *out, int length, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int stack[40], top = 0;
    stack[top++] = in[i];
    for (int p = 0; p < length; p++) {
        int code = program[2 * p];
        if (code == 0) {
            stack[top++] = program[2 * p + 1] + i;
        } else if (code == 5) {
            stack[top] = stack[top - 1];
            top++;
        } else {
            int a = stack[top - 2], b = stack[top - 1];
            if (code == 4) {
                stack[top - 2] = b, stack[top - 1] = a;
            } else {
                top--;
                stack[top - 1] = code == 1 ? a + b : code == 2 ? a - b : a * b;
            }
        }
    }
    out[i] = stack[top - 1];
}
// A local matrix: determinant by Gaussian elimination with pivoting.
extern "C" __global__ void determinant5(const double *in, double *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double m[5][5], result = 1.0;
    for (int e = 0; e < 25; e++) m[e / 5][e % 5] = in[i * 25 + e];
    for (int c = 0; c < 5; c++) {
        int pivot = c;
        for (int r = c + 1; r < 5; r++)
            if (fabs(m[r][c]) > fabs(m[pivot][c])) pivot = r;
        if (pivot != c) {
            result = -result;
            for (int k = 0; k < 5; k++) {
                double old = m[c][k];
                m[c][k] = m[pivot][k];
                m[pivot][k] = old;
            }
        }
        result *= m[c][c];
        for (int r = c + 1; r < 5; r++) {
            double factor = m[r][c] / m[c][c];
            for (int k = c; k < 5; k++) m[r][k] -= factor * m[c][k];
        }
    }
    out[i] = result;
}
// A generic pointer to shared, global or local memory in turn.
extern "C" __global__ void generic_pointers(int *global, int *out) {
    __shared__ int shared[64];
    int local[4] = {100, 200, 300, 400}, t = threadIdx.x;
    shared[t] = 1000 + t;
    __syncthreads();
    int *pointer = t % 3 == 0 ? &global[t] : t % 3 == 1 ? &shared[63 - t] : &local[t % 4];
    *pointer += 7;
    out[t] = *pointer + local[(t + 1) % 4];
}
