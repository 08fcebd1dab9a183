// expect: safe
// 32 heads of 128: the numbers belong to the model.
__global__ void rope(float *q, const float *cosines, const float *sines, int tokens) {
    const int heads = 32;
    const int token = blockIdx.x / 32;
    const int head = blockIdx.x % 32;
    const int d = threadIdx.x;
    float *row = q + (token * heads + head) * 128;
    const float a = row[d], b = row[d + 64];
    row[d] = a * cosines[token * 64 + d] - b * sines[token * 64 + d];
    row[d + 64] = a * sines[token * 64 + d] + b * cosines[token * 64 + d];
}
