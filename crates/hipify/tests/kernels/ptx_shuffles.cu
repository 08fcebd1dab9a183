// Shuffles with a width or a predicate, matches, votes, and the processor's number.
extern "C" __global__ void exchange(unsigned *out, unsigned limits) {
    unsigned lane = threadIdx.x, r, same, inside, sm;
    asm volatile("shfl.sync.idx.b32 %0, %1, 3, 0x1c1f, 0xffffffff;" : "=r"(r) : "r"(lane));
    asm volatile("shfl.sync.up.b32 %0, %1, 1, 0x1000, 0xffffffff;" : "=r"(r) : "r"(r));
    asm volatile("shfl.sync.down.b32 %0, %1, 2, %2, 0xffffffff;" : "=r"(r) : "r"(r), "r"(limits));
    asm volatile("{ .reg .pred p; shfl.sync.up.b32 %0|p, %2, 1, 0, -1; selp.u32 %1, 1, 0, p; }" : "=r"(r), "=r"(inside) : "r"(r));
    asm volatile("match.any.sync.b32 %0, %1, 0xffffffff;" : "=r"(same) : "r"(r & 3));
    asm volatile("{ .reg .pred p; match.all.sync.b32 %0|p, %2, 0xffffffff; selp.u32 %1, 1, 0, p; }" : "=r"(same), "=r"(r) : "r"(r));
    asm volatile("{ .reg .pred p, q; setp.gt.s32 p, %1, 3; vote.sync.any.pred q, !p, 0xffffffff; selp.b32 %0, 1, 0, q; }"
                 : "=r"(r) : "r"(r));
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; vote.sync.ballot.b32 %0, p, %2; }" : "=r"(same) : "r"(r), "r"(same));
    asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(r) : "r"(r));
    asm volatile("bar.warp.sync 0xffffffff;");
    asm("mov.u32 %0, %%smid;" : "=r"(sm));
    asm("mov.u32 %0, %%warpid;" : "=r"(inside));
    out[lane] = r + same + inside + sm;
}
