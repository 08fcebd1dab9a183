// expect: WW0210@3, WW0204@11
__device__ double sum(double v) {
    v += __shfl_down(v, 16);
    v += __shfl_down(v, 8);
    v += __shfl_down(v, 4);
    v += __shfl_down(v, 2);
    v += __shfl_down(v, 1);
    return v;
}

__device__ int votes(bool p) { return __popc(__ballot(p)); }
