// expect: WW0209@2, WW0209@10, WW0209@11, WW0209@12
#if warpSize == 64
#define HALF 32
#else
#define HALF 16
#endif
template <int N> struct Lanes { static const int n = N; };

__global__ void k(int *out) {
    if constexpr (warpSize == 32) out[0] = 1;
    out[1] = Lanes<warpSize>::n;
    float regs[warpSize / 4];
    out[2] = (int)regs[0];
}
