#include <nvrtc.h>
nvrtcResult build(const char *source, nvrtcProgram *program) {
  nvrtcCreateProgram(program, source, "k.cu", 0, nullptr, nullptr);
  const char *options[] = {"--std=c++17"};
  return nvrtcCompileProgram(*program, 1, options);
}
