// A file without CUDA headers whose includes have C's linkage.

#include <hip/hip_runtime.h>
#ifdef __cplusplus
extern "C" {
#endif
#include <stddef.h>
void run(hipStream_t stream, size_t n);
#ifdef __cplusplus
}
#endif
