// Loads and stores with hints, fences, barriers, sleep.
extern "C" __global__ void memory(const float4 *in, float4 *out, unsigned *flag) {
    float4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(in + threadIdx.x));
    asm volatile("st.global.cs.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(out + threadIdx.x), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
                 : "memory");
    unsigned seen;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1+4];" : "=r"(seen) : "l"(flag));
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flag), "r"(seen));
    asm volatile("membar.gl;" ::: "memory");
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
    asm volatile("bar.sync 0;");
    asm volatile("nanosleep.u32 %0;" ::"r"(100));
    asm volatile("prefetch.global.L2 [%0];" ::"l"(in));
    asm volatile("cp.async.commit_group;\n" ::);
    asm volatile("cp.async.wait_group %0;\n" ::"n"(0));
    asm volatile("" ::: "memory");
    if (seen == 7) asm volatile("trap;");
    else flag[2] = seen;
}
