// expect: safe
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
__global__ void rows(const float *x, float *y, int cols) {
    auto block = cg::this_thread_block();
    auto warp = cg::tiled_partition<32>(block);
    const int lane = warp.thread_rank();
    const int wid = warp.meta_group_rank();
    float s = 0;
    for (int c = lane; c < cols; c += 32) s += x[wid * cols + c];
    s = cg::reduce(warp, s, cg::plus<float>());
    if (lane == 31) y[wid] = s;
    if (warp.any(s > 0)) y[wid] += 1;
}
