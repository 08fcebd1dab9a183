// expect: safe
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__device__ int atomic_inc(int *p) {
    cg::coalesced_group g = cg::coalesced_threads();
    int prev = 0;
    if (g.thread_rank() == 0) prev = atomicAdd(p, (int)g.size());
    return g.shfl(prev, 0) + g.thread_rank();
}
