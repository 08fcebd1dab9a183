/* GPU memory through HIP (the library that WARPWAVE_HIP_LIB names) or CUDA. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    int hip;
    int (*alloc)(void **, size_t);
    int (*alloc_managed)(void **, size_t, unsigned);
    int (*release)(void *);
    int (*hip_copy)(void *, const void *, size_t, int);
    int (*to_device)(void *, const void *, size_t);
    int (*to_host)(void *, const void *, size_t);
    int (*wait)(void);
} gpu;

static void gpu_check(int code, const char *what) {
    if (code == 0) return;
    fprintf(stderr, "gpu: %s: error %d\n", what, code);
    exit(4);
}

static void *gpu_symbol(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (!found) fprintf(stderr, "gpu: no %s\n", name), exit(4);
    return found;
}

/* Selects a device for the rank, round-robin. */
static void gpu_open(int rank) {
    const char *hip = getenv("WARPWAVE_HIP_LIB");
    void *library = dlopen(hip ? hip : "libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!library) fprintf(stderr, "gpu: %s\n", dlerror()), exit(4);
    gpu.hip = hip != NULL;
    int count = 0, device = 0;
#define CALL(type, name, ...) gpu_check(((int (*) type)gpu_symbol(library, name))(__VA_ARGS__), name)
    if (gpu.hip) {
        CALL((int *), "hipGetDeviceCount", &count);
        CALL((int), "hipSetDevice", rank % count);
        gpu.hip_copy = (int (*)(void *, const void *, size_t, int))gpu_symbol(library, "hipMemcpy");
    } else {
        void *context = NULL;
        CALL((unsigned), "cuInit", 0);
        CALL((int *), "cuDeviceGetCount", &count);
        CALL((int *, int), "cuDeviceGet", &device, rank % count);
        CALL((void **, int), "cuDevicePrimaryCtxRetain", &context, device);
        CALL((void *), "cuCtxSetCurrent", context);
        gpu.to_device = (int (*)(void *, const void *, size_t))gpu_symbol(library, "cuMemcpyHtoD_v2");
        gpu.to_host = (int (*)(void *, const void *, size_t))gpu_symbol(library, "cuMemcpyDtoH_v2");
    }
    gpu.alloc = (int (*)(void **, size_t))gpu_symbol(library, gpu.hip ? "hipMalloc" : "cuMemAlloc_v2");
    gpu.alloc_managed = (int (*)(void **, size_t, unsigned))gpu_symbol(library, gpu.hip ? "hipMallocManaged" : "cuMemAllocManaged");
    gpu.release = (int (*)(void *))gpu_symbol(library, gpu.hip ? "hipFree" : "cuMemFree_v2");
    gpu.wait = (int (*)(void))gpu_symbol(library, gpu.hip ? "hipDeviceSynchronize" : "cuCtxSynchronize");
}

static void *gpu_alloc(size_t bytes, int managed) {
    void *p = NULL;
    gpu_check(managed ? gpu.alloc_managed(&p, bytes, 1) : gpu.alloc(&p, bytes), "allocation");
    return p;
}

static void gpu_free(void *p) {
    gpu_check(gpu.release(p), "free");
}

/* Copies between host and device memory. */
static void gpu_put(void *device, const void *host, size_t bytes) {
    gpu_check(gpu.hip ? gpu.hip_copy(device, host, bytes, 1) : gpu.to_device(device, host, bytes), "copy to the device");
}

static void gpu_get(void *host, const void *device, size_t bytes) {
    gpu_check(gpu.hip ? gpu.hip_copy(host, device, bytes, 2) : gpu.to_host(host, device, bytes), "copy to the host");
}
