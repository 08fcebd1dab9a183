// A file without CUDA headers whose includes have C's linkage.
#ifdef __cplusplus
extern "C" {
#endif
#include <stddef.h>
void run(cudaStream_t stream, size_t n);
#ifdef __cplusplus
}
#endif
