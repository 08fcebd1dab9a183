// expect: WW0210@5
__device__ float reduce_while(float v) {
    int offset = 16;
    while (offset > 0) {
        v += __shfl_down_sync(~0ull, v, offset);
        offset >>= 1;
    }
    return v;
}
