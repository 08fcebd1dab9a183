// expect: WW0213@3
__device__ void finish_max(volatile float *sm, int t) {
    sm[t] = fmaxf(sm[t], sm[t + 32]);
    sm[t] = fmaxf(sm[t], sm[t + 16]);
    sm[t] = fmaxf(sm[t], sm[t + 8]);
    sm[t] = fmaxf(sm[t], sm[t + 4]);
    sm[t] = fmaxf(sm[t], sm[t + 2]);
    sm[t] = fmaxf(sm[t], sm[t + 1]);
}
