// expect: WW0208@2, WW0208@3, WW0208@4, WW0208@8, WW0208@9
#define THREADS_PER_WARP 32
#define LOG_WARP_SIZE 5
#define WARP_SIZE_MASK 31
#define WARPS_PER_BLOCK 32
#define WARP_TILE_M 32
#define LANE(t) ((t) & WARP_SIZE_MASK)
static const int warp_size = 32;
enum { kWarpThreads = 32, kStages = 5 };
