// Two or four numbers in a word.
extern "C" __global__ void video(unsigned *u) {
    u[0] = __vadd4(u[1], u[2]) + __vsub4(u[1], u[2]) + __vaddss4(u[1], u[2]) + __vsubss4(u[1], u[2]) + __vaddus4(u[1], u[2]);
    u[1] = __vabs4(u[1]) + __vneg4(u[1]) + __vmaxs4(u[1], u[2]) + __vminu4(u[1], u[2]) + __vabsdiffu4(u[1], u[2]);
    u[2] = __vcmpeq4(u[1], u[2]) + __vcmpne4(u[1], u[2]) + __vcmpgts4(u[1], u[2]) + __vsetltu4(u[1], u[2]) + __vsadu4(u[1], u[2]);
    u[3] = __vadd2(u[1], u[2]) + __vsub2(u[1], u[2]) + __vmaxs2(u[1], u[2]) + __vcmpeq2(u[1], u[2]) + __vavgu4(u[1], u[2]);
}
