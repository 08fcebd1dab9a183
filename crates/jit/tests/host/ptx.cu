// PTX as sources write it; the test translates it for HIP and runs it on the host.
static unsigned ptx_up(unsigned value, unsigned by, unsigned limits, unsigned *inside) {
    unsigned got;
    asm("{ .reg .pred p; shfl.sync.up.b32 %0|p, %2, %3, %4, 0xffffffff; selp.u32 %1, 1, 0, p; }"
        : "=r"(got), "=r"(*inside) : "r"(value), "r"(by), "r"(limits));
    return got;
}
static unsigned ptx_down(unsigned value, unsigned by, unsigned limits, unsigned *inside) {
    unsigned got;
    asm("{ .reg .pred p; shfl.sync.down.b32 %0|p, %2, %3, %4, 0xffffffff; selp.u32 %1, 1, 0, p; }"
        : "=r"(got), "=r"(*inside) : "r"(value), "r"(by), "r"(limits));
    return got;
}
static unsigned ptx_bfly(unsigned value, unsigned by, unsigned limits, unsigned *inside) {
    unsigned got;
    asm("{ .reg .pred p; shfl.sync.bfly.b32 %0|p, %2, %3, %4, 0xffffffff; selp.u32 %1, 1, 0, p; }"
        : "=r"(got), "=r"(*inside) : "r"(value), "r"(by), "r"(limits));
    return got;
}
static unsigned ptx_idx(unsigned value, unsigned by, unsigned limits, unsigned *inside) {
    unsigned got;
    asm("{ .reg .pred p; shfl.sync.idx.b32 %0|p, %2, %3, %4, 0xffffffff; selp.u32 %1, 1, 0, p; }"
        : "=r"(got), "=r"(*inside) : "r"(value), "r"(by), "r"(limits));
    return got;
}
static unsigned ptx_match(unsigned value) {
    unsigned got;
    asm("match.any.sync.b32 %0, %1, 0xffffffff;" : "=r"(got) : "r"(value));
    return got;
}
static unsigned ptx_match_all(unsigned value, unsigned *all) {
    unsigned got;
    asm("{ .reg .pred p; match.all.sync.b32 %0|p, %2, 0xffffffff; selp.u32 %1, 1, 0, p; }" : "=r"(got), "=r"(*all) : "r"(value));
    return got;
}
static int ptx_redux_min(int value) {
    int got;
    asm("redux.sync.min.s32 %0, %1, 0xffffffff;" : "=r"(got) : "r"(value));
    return got;
}
static unsigned ptx_any(unsigned value, unsigned mask) {
    unsigned got;
    asm("{ .reg .pred p, q; setp.eq.u32 p, %1, 9; vote.sync.any.pred q, p, %2; selp.b32 %0, 1, 0, q; }" : "=r"(got) : "r"(value), "r"(mask));
    return got;
}
static unsigned ptx_bfe(unsigned value, unsigned from, unsigned count) {
    unsigned got;
    asm("bfe.u32 %0, %1, %2, %3;" : "=r"(got) : "r"(value), "r"(from), "r"(count));
    return got;
}
static int ptx_bfe_signed(int value, unsigned from, unsigned count) {
    int got;
    asm("bfe.s32 %0, %1, %2, %3;" : "=r"(got) : "r"(value), "r"(from), "r"(count));
    return got;
}
static unsigned ptx_bfi(unsigned part, unsigned into, unsigned from, unsigned count) {
    unsigned got;
    asm("bfi.b32 %0, %1, %2, %3, %4;" : "=r"(got) : "r"(part), "r"(into), "r"(from), "r"(count));
    return got;
}
static unsigned ptx_lop3(unsigned a, unsigned b, unsigned c) {
    unsigned got;
    asm("lop3.b32 %0, %1, %2, %3, 0xe2;" : "=r"(got) : "r"(a), "r"(b), "r"(c));
    return got;
}
static int ptx_shr(int value, unsigned by) {
    int got;
    asm("shr.s32 %0, %1, %2;" : "=r"(got) : "r"(value), "r"(by));
    return got;
}
static unsigned ptx_compare(float a, float b) {
    unsigned got;
    asm("{ .reg .pred p; .reg .u32 t; setp.lt.f32 p, %1, %2; selp.u32 %0, 1, 0, p; setp.geu.f32 p, %1, %2; selp.u32 t, 2, 0, p; or.b32 %0, %0, t;\n"
        "setp.ne.f32 p, %1, %2; selp.u32 t, 4, 0, p; or.b32 %0, %0, t; setp.nan.f32 p, %1, %2; @p or.b32 %0, %0, 8; }"
        : "=r"(got) : "f"(a), "f"(b));
    return got;
}
static unsigned ptx_pack_bf16(float upper, float lower) {
    unsigned got;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(got) : "f"(upper), "f"(lower));
    return got;
}
static unsigned ptx_pack_half(float upper, float lower) {
    unsigned got;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(got) : "f"(upper), "f"(lower));
    return got;
}
static unsigned ptx_fma_half(unsigned a, unsigned b, unsigned c) {
    unsigned got;
    asm("{ .reg .b32 t; mul.f16x2 t, %1, %2; add.f16x2 %0, t, %3; }" : "=r"(got) : "r"(a), "r"(b), "r"(c));
    return got;
}
static unsigned ptx_swap(unsigned value) {
    unsigned got;
    asm("{ .reg .b16 low, high; mov.b32 {low, high}, %1; mov.b32 %0, {high, low}; }" : "=r"(got) : "r"(value));
    return got;
}
static unsigned ptx_tf32(float value) {
    unsigned got;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(got) : "f"(value));
    return got;
}
