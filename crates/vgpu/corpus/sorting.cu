// Sorting, histograms, selection.
#include <math.h>

// 512 keys per block, in shared memory.
template <class T> static __device__ void bitonic(T *keys) {
    __shared__ T part[512];
    int t = threadIdx.x;
    keys += blockIdx.x * 512;
    part[t] = keys[t];
    part[t + 256] = keys[t + 256];
    for (int size = 2; size <= 512; size *= 2) {
        for (int step = size / 2; step; step /= 2) {
            __syncthreads();
            int low = 2 * t - (t & (step - 1)), high = low + step;
            bool up = (low & size) == 0;
            if ((part[low] > part[high]) == up) {
                T old = part[low];
                part[low] = part[high];
                part[high] = old;
            }
        }
    }
    __syncthreads();
    keys[t] = part[t];
    keys[t + 256] = part[t + 256];
}
extern "C" __global__ void bitonic_i32(int *keys) { bitonic(keys); }
extern "C" __global__ void bitonic_f32(float *keys) { bitonic(keys); }
extern "C" __global__ void bitonic_u64(unsigned long long *keys) { bitonic(keys); }

// One step of a sort of a power of two of keys in global memory; the host would launch them all, here a block does.
extern "C" __global__ void bitonic_global_u32(unsigned int *keys, int n) {
    for (int size = 2; size <= n; size *= 2)
        for (int step = size / 2; step; step /= 2) {
            for (int i = threadIdx.x; i < n; i += blockDim.x) {
                int other = i ^ step;
                if (other > i && (keys[i] > keys[other]) == ((i & size) == 0)) {
                    unsigned int old = keys[i];
                    keys[i] = keys[other];
                    keys[other] = old;
                }
            }
            __syncthreads();
        }
}
// Least significant digit first, four bits a round, stable: one block, keys with values.
extern "C" __global__ void radix_sort(unsigned int *keys, unsigned int *values, unsigned int *spare_keys,
                                      unsigned int *spare_values, int n) {
    __shared__ int counts[16][65];
    __shared__ int starts[16];
    int t = threadIdx.x, threads = blockDim.x, share = (n + threads - 1) / threads;
    unsigned int *from = keys, *to = spare_keys, *from_value = values, *to_value = spare_values;
    for (int shift = 0; shift < 32; shift += 4) {
        for (int d = 0; d < 16; d++) counts[d][t] = 0;
        for (int i = t * share; i < n && i < (t + 1) * share; i++) counts[(from[i] >> shift) & 15][t]++;
        __syncthreads();
        if (t < 16) {
            int sum = 0;
            for (int i = 0; i < threads; i++) {
                int count = counts[t][i];
                counts[t][i] = sum;
                sum += count;
            }
            starts[t] = sum;
        }
        __syncthreads();
        if (t == 0) {
            int sum = 0;
            for (int d = 0; d < 16; d++) {
                int count = starts[d];
                starts[d] = sum;
                sum += count;
            }
        }
        __syncthreads();
        for (int i = t * share; i < n && i < (t + 1) * share; i++) {
            int digit = (from[i] >> shift) & 15, place = starts[digit] + counts[digit][t]++;
            to[place] = from[i];
            to_value[place] = from_value[i];
        }
        __syncthreads();
        unsigned int *old = from;
        from = to, to = old;
        old = from_value;
        from_value = to_value, to_value = old;
    }
}
extern "C" __global__ void odd_even_sort(short *keys, int n) {
    for (int round = 0; round < n; round++) {
        for (int i = 2 * threadIdx.x + round % 2; i + 1 < n; i += 2 * blockDim.x)
            if (keys[i] > keys[i + 1]) {
                short old = keys[i];
                keys[i] = keys[i + 1];
                keys[i + 1] = old;
            }
        __syncthreads();
    }
}
extern "C" __global__ void histogram_global(const unsigned char *in, unsigned int *bins, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) atomicAdd(&bins[in[i]], 1u);
}
extern "C" __global__ void histogram_shared(const unsigned char *in, unsigned int *bins, int n) {
    __shared__ unsigned int part[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) part[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) atomicAdd(&part[in[i]], 1u);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x)
        if (part[i]) atomicAdd(&bins[i], part[i]);
}
// The four largest of each row, in order; a thread per row.
extern "C" __global__ void top4(const float *in, float *best, int *where, int rows, int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float value[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    int index[4] = {-1, -1, -1, -1};
    for (int i = 0; i < columns; i++) {
        float x = in[row * columns + i];
        int at = i;
        for (int j = 0; j < 4; j++)
            if (x > value[j]) {
                float old = value[j];
                value[j] = x, x = old;
                int place = index[j];
                index[j] = at, at = place;
            }
    }
    for (int j = 0; j < 4; j++) best[row * 4 + j] = value[j], where[row * 4 + j] = index[j];
}
// Lower bound of each needle in a sorted array.
extern "C" __global__ void lower_bound(const int *sorted, const int *needles, int *place, int n, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    int low = 0, high = n;
    while (low < high) {
        int middle = (low + high) / 2;
        if (sorted[middle] < needles[i]) low = middle + 1;
        else high = middle;
    }
    place[i] = low;
}
