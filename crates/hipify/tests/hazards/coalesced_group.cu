// expect: WW0217@6
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__device__ int atomic_inc(int *p) {
    auto g = cg::coalesced_threads();
    if (g.size() == 32) return -1;
    int prev = 0;
    if (g.thread_rank() == 0) prev = atomicAdd(p, g.size());
    return g.shfl(prev, 0) + g.thread_rank();
}
