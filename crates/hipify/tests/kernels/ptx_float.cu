// Floating point instructions and conversions.
extern "C" __global__ void floats(const float *in, float *out, unsigned short *half, double *d, int *n) {
    float x = in[threadIdx.x], y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    out[0] = y;
    asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    out[1] = y;
    asm("rsqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    out[2] = y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    out[3] = y;
    asm("sqrt.rn.f32 %0, %1;" : "=f"(y) : "f"(x));
    out[4] = y;
    asm("sin.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    out[5] = y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    out[6] = y;
    asm("fma.rn.f32 %0, %1, %1, 0f3F800000;" : "=f"(y) : "f"(x));
    out[7] = y;
    asm("fma.rn.f64 %0, %1, %1, %1;" : "=d"(d[0]) : "d"(d[1]));
    asm volatile("cvt.rn.f16.f32 %0, %1;\n" : "=h"(half[0]) : "f"(x));
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(half[1]));
    out[8] = y;
    asm("cvt.rzi.s32.f32 %0, %1;" : "=r"(n[0]) : "f"(x));
    asm("cvt.rni.s32.f32 %0, %1;" : "=r"(n[1]) : "f"(x));
    asm("max.f32 %0, %0, %1;" : "+f"(y) : "f"(x));
    asm("abs.f32 %0, %1;" : "=f"(out[9]) : "f"(y));
}
