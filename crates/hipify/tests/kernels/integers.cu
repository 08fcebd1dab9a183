// Integer intrinsics: dot products, bits, products, funnels, permutations.
extern "C" __global__ void integers(int *i, unsigned *u, unsigned long long *l) {
    i[0] = __dp4a(i[1], i[2], i[3]) + __dp2a_lo(i[1], i[2], i[3]) + __dp2a_hi(i[1], i[2], i[3]) + __mulhi(i[1], i[2]) + __mul24(i[1], i[2]);
    u[0] = __dp4a(u[1], u[2], u[3]) + __umulhi(u[1], u[2]) + __umul24(u[1], u[2]) + __usad(u[1], u[2], u[3]) + __sad(i[1], i[2], u[3]);
    u[1] = __popc(u[2]) + __clz(i[2]) + __ffs(i[2]) + __brev(u[2]) + __byte_perm(u[1], u[2], 0x3210);
    u[2] = __funnelshift_l(u[1], u[2], 3) + __funnelshift_r(u[1], u[2], 3) + __funnelshift_lc(u[1], u[2], 40) + __funnelshift_rc(u[1], u[2], 40);
    l[0] = __popcll(l[1]) + __clzll(l[1]) + __ffsll(l[1]) + __brevll(l[1]) + __umul64hi(l[1], l[2]);
    i[1] = __hadd(i[1], i[2]) + __rhadd(i[1], i[2]);
}
