#include <cuda_runtime.h>
void fail(const char *call, const char *why);
#define CHECK(call)                                                          \
  do {                                                                       \
    cudaError_t status = (call);                                             \
    if (status != cudaSuccess) fail(#call, cudaGetErrorString(status));      \
  } while (0)
#if defined(cudaStreamNonBlocking) && !defined(NO_STREAMS)
#define FLAGS cudaStreamNonBlocking
#endif
#define JOIN(name) name##_event
void use(cudaEvent_t JOIN(start)) { CHECK(cudaEventRecord(JOIN(start))); }
