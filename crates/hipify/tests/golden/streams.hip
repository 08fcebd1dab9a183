#include <hip/hip_runtime.h>
void time(float *milliseconds) {
  hipStream_t stream;
  hipEvent_t start, stop;
  hipStreamCreateWithFlags(&stream, hipStreamNonBlocking);
  hipEventCreate(&start);
  hipEventCreateWithFlags(&stop, hipEventDisableTiming);
  hipEventRecord(start, stream);
  hipStreamWaitEvent(stream, start, 0);
  hipGraph_t graph;
  hipGraphExec_t instance;
  hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal);
  hipStreamEndCapture(stream, &graph);
  hipGraphInstantiateWithFlags(&instance, graph, 0);
  hipGraphInstantiate(&instance, graph, nullptr, nullptr, 0);
  hipEventElapsedTime(milliseconds, start, stop);
}
