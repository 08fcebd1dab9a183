// expect: WW0210@10, WW0201@12, WW0201@13, WW0207@17
namespace topk {
struct Pair { float v; int i; };

template <int K>
struct WarpTopK {
    Pair best[K];

    __device__ void merge(int lane) {
        for (int delta = 16; delta >= 1; delta /= 2) {
            for (int k = 0; k < K; ++k) {
                float ov = __shfl_down_sync(0xffffffffu, best[k].v, delta);
                int oi = __shfl_down_sync(0xffffffffu, best[k].i, delta);
                if (ov > best[k].v) best[k] = Pair{ov, oi};
            }
        }
        if (lane == 31) best[0].v = 0;
    }
};
}
