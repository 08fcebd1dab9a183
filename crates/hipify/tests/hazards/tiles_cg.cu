// expect: safe
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

__global__ void tile_sum(const float *in, float *out, int n) {
    cg::thread_block block = cg::this_thread_block();
    auto tile = cg::tiled_partition<32>(block);
    int lane = tile.thread_rank();
    float v = 0;
    for (int i = block.thread_rank(); i < n; i += block.size()) v += in[i];
    for (int o = tile.size() / 2; o > 0; o /= 2) v += tile.shfl_down(v, o);
    unsigned lower = tile.ballot(v > 0) & ((1u << lane) - 1);
    if (lane == 0) atomicAdd(out, v + lower);
}
