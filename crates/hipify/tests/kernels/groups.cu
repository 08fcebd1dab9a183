// Cooperative groups and cuda::std.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cuda/std/array>
#include <cuda/std/complex>
#include <cuda/std/limits>
#include <cuda/std/type_traits>
#include <cuda/std/utility>
namespace cg = cooperative_groups;

extern "C" __global__ void groups(float *x, int *out) {
    cg::thread_block block = cg::this_thread_block();
    auto tile = cg::tiled_partition<32>(block);
    auto small = cg::tiled_partition<4>(tile);
    float sum = cg::reduce(tile, x[block.thread_rank()], cg::plus<float>());
    int top = cg::reduce(small, (int)block.thread_rank(), cg::greater<int>());
    int scan = cg::inclusive_scan(tile, 1) + cg::exclusive_scan(tile, 1);
    block.sync();
    if (threadIdx.x % 3 == 0) {
        auto active = cg::coalesced_threads();
        out[0] = active.size() + active.shfl(scan, 0) + active.any(top > 3);
    }
    cg::sync(tile);
    x[block.thread_rank()] = sum + tile.shfl_down(sum, 1) + tile.meta_group_rank() + top + tile.match_any(scan);
}

extern "C" __global__ void library(float *x) {
    cuda::std::array<float, 4> a = {1, 2, 3, 4};
    cuda::std::complex<float> z(a[0], a[1]);
    z *= z;
    cuda::std::swap(a[0], a[3]);
    static_assert(cuda::std::is_same_v<cuda::std::remove_cvref_t<const float &>, float>, "");
    static_assert(cuda::std::is_signed_v<int> && cuda::std::is_unsigned_v<unsigned char>, "");
    x[0] = abs(z) + a.front() + cuda::std::numeric_limits<float>::max() + cuda::std::make_pair(1, 2.0f).second;
}
