// Cooperative groups: the grid's barrier, reductions of a block, scans and parts of coalesced threads, tiles by name.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;

extern "C" __global__ void grid_barrier(int *x) {
    cg::grid_group grid = cg::this_grid();
    x[grid.thread_rank()] = 1;
    if (grid.is_valid()) grid.sync();
    x[0] += x[grid.size() - 1];
}
extern "C" __global__ void block_sum(float *x) {
    cg::thread_block block = cg::this_thread_block();
    float sum = cg::reduce(block, x[block.thread_rank()], cg::plus<float>());
    x[block.thread_rank()] = cg::reduce(block, sum, cg::less<float>());
}
extern "C" __global__ void parts(int *x) {
    cg::thread_block_tile<32> tile = cg::tiled_partition<32>(cg::this_thread_block());
    auto quad = cg::tiled_partition<4>(tile);
    int all;
    int sum = cg::inclusive_scan(quad, x[tile.thread_rank()]) + quad.meta_group_rank() + quad.meta_group_size() + tile.meta_group_size();
    if (threadIdx.x & 1) {
        cg::coalesced_group odd = cg::coalesced_threads();
        sum += cg::exclusive_scan(odd, sum, cg::plus<int>()) + odd.match_any(sum & 1) + odd.match_all(sum, all) + all;
        cg::coalesced_group same = cg::labeled_partition(odd, sum & 3);
        sum += cg::reduce(same, sum, cg::bit_xor<int>()) + same.meta_group_rank();
    }
    auto half = cg::binary_partition(tile, threadIdx.x < 7);
    auto some = cg::tiled_partition(cg::this_thread_block(), 8);
    x[threadIdx.x] = sum + half.shfl_down(sum, 1) + some.ballot(sum) + quad.shfl_xor(sum, 1);
}
