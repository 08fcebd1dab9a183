// Special registers, votes, shuffles; a block with registers and a predicate; assembly in a macro.
#define LANE(x) asm volatile("mov.u32 %0, %%laneid;" \
                             : "=r"(x))
extern "C" __global__ void lanes(unsigned *out) {
    unsigned lane, r, ballot;
    long long t;
    LANE(lane);
    asm("mov.u32 %0, %%tid.x;" : "=r"(r));
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(t));
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    asm volatile("shfl.sync.bfly.b32 %0, %1, 16, 0x1f, 0xffffffff;" : "=r"(r) : "r"(lane));
    asm volatile("{\n"
                 "  .reg .pred p;\n"
                 "  setp.ne.u32 p, %1, 0;\n"
                 "  vote.sync.ballot.b32 %0, p, 0xffffffff;\n"
                 "  @p add.u32 %0, %0, 1;\n"
                 "  selp.b32 %0, %0, %2, p;\n"
                 "}\n"
                 : "=r"(ballot)
                 : "r"(lane), "r"(r));
    asm("redux.sync.add.s32 %0, %1, 0xffffffff;" : "=r"(r) : "r"(r));
    out[lane] = ballot + r + (unsigned)t;
}
