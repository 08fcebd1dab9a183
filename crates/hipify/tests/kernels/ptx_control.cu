// setp, selp, predicated instructions, barriers, fences, special registers.
extern "C" __global__ void control(unsigned *u, float *f) {
    unsigned r, s;
    asm("{ .reg .pred p, q; setp.ltu.f32 p, %1, %2; setp.num.f32 q, %1, %2; selp.u32 %0, 1, 0, p; @!q mov.u32 %0, 7; }"
        : "=r"(r) : "f"(f[0]), "f"(f[1]));
    asm volatile("barrier.sync 0;\n\tmembar.cta;\n\tmembar.sys;\n\tfence.acq_rel.gpu;" ::: "memory");
    asm("mov.u32 %0, %%ctaid.x; " : "=r"(s));
    asm("{ .reg .u32 t<2>; mov.u32 t0, %%ntid.x; mad.lo.u32 %0, t0, %1, %2; }" : "=r"(s) : "r"(s), "r"(r));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(f[2]) : "f"(f[1]));
    asm("mov.b32 %0, 0f3F800000;" : "=r"(u[2]));
    asm("mul.f32 %0, %1, 0f40000000;" : "=f"(f[3]) : "f"(f[2]));
    asm("bfind.u32 %0, %1;" : "=r"(u[1]) : "r"(r));
    u[0] = r + s;
}
