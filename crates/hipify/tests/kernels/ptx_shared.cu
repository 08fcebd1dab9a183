// Shared memory by its address within the block: copies, loads, stores.
__device__ unsigned shared_address(const void *pointer) {
    unsigned address;
    asm("{ .reg .u64 wide; cvta.to.shared.u64 wide, %1; cvt.u32.u64 %0, wide; }" : "=r"(address) : "l"(pointer));
    return address;
}
extern "C" __global__ void shared_memory(const float4 *in, float4 *out, int bytes) {
    __shared__ float4 tile[256];
    unsigned to = shared_address(&tile[threadIdx.x]);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(to), "l"(in + threadIdx.x));
    asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], %2;\n" ::"r"(to), "l"(in + threadIdx.x), "n"(8));
    asm volatile("cp.async.cg.shared.global [%0], [%1], %2, %3;\n" ::"r"(to), "l"(in + threadIdx.x), "n"(16), "r"(bytes));
    asm volatile("cp.async.commit_group;");
    asm volatile("cp.async.wait_group %0;" ::"n"(1));
    asm volatile("cp.async.wait_all;");
    asm volatile("bar.sync 0;");
    float x;
    asm volatile("ld.shared.f32 %0, [%1+4];" : "=f"(x) : "r"(to));
    asm volatile("st.shared.v2.f32 [%0 + %3], {%1, %2};" ::"r"(to), "f"(x), "f"(x), "n"(8));
    unsigned long long generic;
    asm("cvta.shared.u64 %0, %1;" : "=l"(generic) : "l"((unsigned long long)to));
    __syncthreads();
    out[threadIdx.x] = *(float4 *)generic;
}
