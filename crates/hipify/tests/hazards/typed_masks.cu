// expect: WW0203@4, WW0204@5
using mask_t = unsigned int;
__device__ int leaders(int key) {
    mask_t peers = __match_any_sync(__activemask(), key);
    return __ffs(peers);
}
