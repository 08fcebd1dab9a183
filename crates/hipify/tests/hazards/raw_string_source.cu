// expect: safe
const char *kernel_source = R"(
__global__ void k(float *x) {
    int lane = threadIdx.x & 31;
    x[0] = __shfl_sync(0xffffffff, x[lane], 31);
}
)";
const char *note = "warpSize is 32; asm(\"mov.u32 %0, %laneid;\")";
