// expect: WW0201@3
__device__ unsigned total(unsigned v) {
    return __reduce_add_sync(0xffffffffU, v);
}

__device__ int largest(int v, unsigned long long members) { return __reduce_max_sync(members, v); }
