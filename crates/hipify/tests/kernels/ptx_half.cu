// Halves and bfloats: conversions, pairs, moves of packed registers.
extern "C" __global__ void halves(unsigned *out, const float *in) {
    float a = in[0], b = in[1], c;
    unsigned packed, other;
    unsigned short h;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(a), "f"(b));
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(other) : "f"(a), "f"(b));
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(a));
    asm("cvt.f32.bf16 %0, %1;" : "=f"(c) : "h"(h));
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(c));
    asm("cvt.f32.f16 %0, %1;" : "=f"(c) : "h"(h));
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(out[6]) : "f"(c));
    asm("add.f16x2 %0, %1, %2;" : "=r"(out[0]) : "r"(packed), "r"(packed));
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(out[1]) : "r"(packed), "r"(packed));
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(out[2]) : "r"(packed), "r"(packed), "r"(out[0]));
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(out[3]) : "r"(other), "r"(other), "r"(other));
    asm("{ .reg .f16 low, high; mov.b32 {low, high}, %1; mov.b32 %0, {high, low}; }" : "=r"(out[4]) : "r"(packed));
    asm("mov.b64 {%0, %1}, %2;" : "=r"(packed), "=r"(other) : "l"(0x100000002ull));
    asm("mov.b32 %0, {%1, %1, %1, %1};" : "=r"(out[7]) : "h"(h));
    out[5] = packed + other + __float_as_uint(c);
}
