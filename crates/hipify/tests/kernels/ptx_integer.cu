// Integer instructions.
extern "C" __global__ void integers(const unsigned *in, unsigned *out, unsigned long long *wide) {
    unsigned a = in[threadIdx.x], b = in[threadIdx.x + 1], r;
    int s;
    asm("bfe.u32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(4), "r"(8));
    out[0] = r;
    asm("bfe.s32 %0, %1, 4, 8;" : "=r"(s) : "r"(a));
    out[1] = s;
    asm("bfi.b32 %0, %1, %2, %3, %4;" : "=r"(r) : "r"(a), "r"(b), "r"(3), "r"(5));
    out[2] = r;
    asm("lop3.b32 %0, %1, %2, %3, 0xE8;" : "=r"(r) : "r"(a), "r"(b), "r"(7));
    out[3] = r;
    asm("prmt.b32 %0, %1, %2, 0x3210;" : "=r"(r) : "r"(a), "r"(b));
    out[4] = r;
    asm("shf.l.wrap.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(9));
    out[5] = r;
    asm("popc.b32 %0, %1;" : "=r"(r) : "r"(a));
    out[6] = r;
    asm("clz.b32 %0, %1;" : "=r"(r) : "r"(a));
    out[7] = r;
    asm("brev.b32 %0, %1;" : "=r"(r) : "r"(a));
    out[8] = r;
    asm("mul.hi.u32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    out[9] = r;
    asm("mad.lo.s32 %0, %1, %2, %3;" : "=r"(s) : "r"(a), "r"(b), "r"(-1));
    out[10] = s;
    asm("mul.wide.u32 %0, %1, %2;" : "=l"(wide[0]) : "r"(a), "r"(b));
    asm("mad.wide.s32 %0, %1, %2, %3;" : "=l"(wide[1]) : "r"(a), "r"(b), "l"(wide[2]));
    asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(s) : "r"(a), "r"(b), "r"(s));
    out[11] = s;
    asm("min.s32 %0, %1, %2;" : "=r"(s) : "r"(a), "r"(b));
    out[12] = s;
    asm("shr.u32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(40));
    out[13] = r;
    asm("mov.b64 %0, {%1, %2};" : "=l"(wide[3]) : "r"(a), "r"(b));
    asm("mov.b64 {%0, %1}, %2;" : "=r"(r), "=r"(s) : "l"(wide[3]));
    out[14] = r + s;
}
