// expect: WW0215@7
__device__ unsigned rotate_lanes(unsigned v) {
    unsigned r;
    asm volatile( 
        "{\n"
        "  .reg .pred p;\n"
        "  shfl.sync.bfly.b32 %0|p, %1, 16, 31, 0xffffffff;\n"
        "}\n"
        : "=r"(r)
        : "r"(v));
    return r;
}
