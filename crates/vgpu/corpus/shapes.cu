// Grid and block shapes, and divergent control flow.

// Every built-in index, into a record of six numbers per thread.
extern "C" __global__ void all_indexes(unsigned int *out) {
    unsigned int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    unsigned int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    unsigned int *mine = out + (size_t)(block * blockDim.x * blockDim.y * blockDim.z + thread) * 6;
    mine[0] = threadIdx.x, mine[1] = threadIdx.y, mine[2] = threadIdx.z;
    mine[3] = blockIdx.x, mine[4] = blockIdx.y, mine[5] = blockIdx.z;
}
extern "C" __global__ void all_sizes(unsigned int *out) {
    if (threadIdx.x + threadIdx.y + threadIdx.z + blockIdx.x + blockIdx.y + blockIdx.z == 0) {
        out[0] = blockDim.x, out[1] = blockDim.y, out[2] = blockDim.z;
        out[3] = gridDim.x, out[4] = gridDim.y, out[5] = gridDim.z;
        out[6] = warpSize;
    }
}
extern "C" __global__ void volume(const float *in, float *out, int width, int height, int depth) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, z = blockIdx.z * blockDim.z + threadIdx.z;
    if (x >= width || y >= height || z >= depth) return;
    int i = (z * height + y) * width + x;
    float sum = in[i];
    if (x > 0) sum += in[i - 1];
    if (y + 1 < height) sum += in[i + width];
    if (z > 0) sum += in[i - width * height];
    out[i] = sum;
}
extern "C" __global__ void grid_stride(const int *in, long long *out, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) out[i] = (long long)in[i] * in[i] - i;
}
// Lanes that exit at once, later, or not at all.
extern "C" __global__ void early_exit(const int *in, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n || in[i] % 5 == 0) return;
    int x = in[i];
    for (int step = 0; step < 20; step++) {
        x = x * 1103515245 + 12345;
        if ((x & 7) == 3) {
            out[i] = step;
            return;
        }
    }
    out[i] = -x;
}
extern "C" __global__ void collatz(const unsigned int *in, int *steps, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned long long x = in[i];
    int count = 0;
    while (x != 1) {
        x = x & 1 ? 3 * x + 1 : x / 2;
        count++;
    }
    steps[i] = count;
}
extern "C" __global__ void nested_branches(const int *in, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int x = in[i], result = 0;
    for (int round = 0; round < (x & 7) + 1; round++) {
        if (x % 2) {
            if (x % 3 == 0) result += 1;
            else if (x % 3 == 1) {
                for (int j = 0; j < x % 11; j++) {
                    if (j == 4) continue;
                    if (j == 8) break;
                    result += j * round;
                }
            } else result -= 3;
        } else {
            int y = x;
            do {
                y /= 3;
                result ^= y;
            } while (y > 2);
        }
        x = x / 2 + 1;
    }
    out[i] = result;
}
extern "C" __global__ void switch_loop(const unsigned char *code, int *out, int n, int length) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int state = 0, sum = 0;
    for (int p = 0; p < length; p++) {
        switch ((code[p] + state + i) % 6) {
            case 0: state = 1; break;
            case 1: state += 2; sum += state;
            case 2: sum ^= p; break;
            case 3: if (sum & 1) break; sum += 5; break;
            case 4: state = sum & 3; break;
            default: sum -= state;
        }
    }
    out[i] = sum * 16 + state;
}
extern "C" __global__ void mandelbrot(int *out, int width, int height, int limit) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    // On a grid of 1/64 and rounded to 1/65536 in each step: the same on every machine.
    long long cr = (long long)x * 1024 * 3 - 2 * 65536, ci = (long long)y * 1024 * 2 - 65536, zr = 0, zi = 0;
    int steps = 0;
    while (steps < limit && zr * zr + zi * zi < (4ll << 32)) {
        long long next = ((zr * zr - zi * zi) >> 16) + cr;
        zi = ((2 * zr * zi) >> 16) + ci;
        zr = next;
        steps++;
    }
    out[y * width + x] = steps;
}
extern "C" __global__ void life(const unsigned char *in, unsigned char *out, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    int around = 0;
    for (int dy = -1; dy <= 1; dy++)
        for (int dx = -1; dx <= 1; dx++)
            if (dx || dy) around += in[(y + dy + height) % height * width + (x + dx + width) % width];
    out[y * width + x] = around == 3 || (around == 2 && in[y * width + x]);
}
