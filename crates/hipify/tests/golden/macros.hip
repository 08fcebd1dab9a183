#include <hip/hip_runtime.h>
void fail(const char *call, const char *why);
#define CHECK(call)                                                          \
  do {                                                                       \
    hipError_t status = (call);                                             \
    if (status != hipSuccess) fail(#call, hipGetErrorString(status));      \
  } while (0)
#if defined(hipStreamNonBlocking) && !defined(NO_STREAMS)
#define FLAGS hipStreamNonBlocking
#endif
#define JOIN(name) name##_event
void use(hipEvent_t JOIN(start)) { CHECK(hipEventRecord(JOIN(start))); }
