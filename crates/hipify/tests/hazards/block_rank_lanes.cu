// expect: WW0207@7, WW0211@9, WW0207@10
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void rows(const float *x, float *y) {
    auto block = cg::this_thread_block();
    const int tid = block.thread_rank();
    const int lane = tid % 32;
    float v = x[tid];
    v = __shfl_sync(~0ull, v, 0);
    if (lane == 0) y[tid / 32] = v;
}
