
#include <hip/hip_runtime.h>
#include <hiprtc.h>
hiprtcResult build(const char *source, hiprtcProgram *program) {
  hiprtcCreateProgram(program, source, "k.cu", 0, nullptr, nullptr);
  const char *options[] = {"--std=c++17"};
  return hiprtcCompileProgram(*program, 1, options);
}
