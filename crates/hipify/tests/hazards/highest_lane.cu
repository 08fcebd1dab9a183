// expect: WW0203@3, WW0204@4, WW0204@8
__device__ int last_active(bool p) {
    unsigned m = __ballot_sync(__activemask(), p);
    return 31 - __clz(m);
}

__device__ unsigned reversed(bool p) {
    return __brev(__ballot_sync(__activemask(), p));
}
