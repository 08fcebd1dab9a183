// A whole HIP program, compiled without HIP's headers: what it needs of them stands here.
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
typedef __SIZE_TYPE__ size_t;
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
typedef int hipError_t;
typedef struct ihipStream_t* hipStream_t;
extern "C" {
int printf(const char*, ...);
hipError_t __hipPushCallConfiguration(dim3, dim3, size_t = 0, hipStream_t = 0);
hipError_t hipLaunchKernel(const void*, dim3, dim3, void**, size_t, hipStream_t);
hipError_t hipMalloc(void**, size_t);
hipError_t hipFree(void*);
hipError_t hipMemcpy(void*, const void*, size_t, int);
hipError_t hipMemcpyToSymbol(const void*, const void*, size_t, size_t, int);
hipError_t hipMemcpyFromSymbol(void*, const void*, size_t, size_t, int);
hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessor(int*, const void*, int, size_t);
hipError_t hipGetLastError();
hipError_t hipDeviceSynchronize();
const char* hipGetErrorString(hipError_t);
}

__device__ int base = 5;

template <class T> __global__ void add(T* data, T value, int n) {
    int i = __builtin_amdgcn_workgroup_id_x() * __builtin_amdgcn_workgroup_size_x() + __builtin_amdgcn_workitem_id_x();
    if (i < n) data[i] += value + base;
}

__global__ void outside(int* data) { data[1 << 28] = 1; }

int main() {
    int host[200] = {}, seven = 7, back = 0, blocks = 0;
    void* device;
    hipError_t code = hipMalloc(&device, sizeof host);
    code |= hipMemcpy(device, host, sizeof host, 1);
    add<int><<<4, 64>>>((int*)device, 100, 200);
    code |= hipGetLastError();
    code |= hipMemcpyToSymbol(&base, &seven, sizeof seven, 0, 1);
    add<int><<<1, 64>>>((int*)device, 1000, 200);
    code |= hipMemcpy(host, device, sizeof host, 2);
    code |= hipMemcpyFromSymbol(&back, &base, sizeof back, 0, 2);
    code |= hipOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, (const void*)add<int>, 64, 0);
    printf("%d: %d %d %d, base %d, %d blocks\n", code, host[0], host[63], host[199], back, blocks);
    add<int><<<1, 2048>>>((int*)device, 1, 200);
    printf("too large: %d\n", hipGetLastError());
    outside<<<1, 1>>>((int*)device);
    code = hipDeviceSynchronize();
    printf("%d: %s\n", code, hipGetErrorString(code));
    return 0;
}
