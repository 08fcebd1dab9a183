// expect: safe
#include <cuda_runtime.h>
int lanes_of(int device) {
    cudaDeviceProp prop;
    cudaGetDeviceProperties(&prop, device);
    const int warp_size = prop.warpSize;
    int num_warps = 1024 / prop.warpSize;
    return warp_size * num_warps;
}
