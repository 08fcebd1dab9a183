// The published tables' name for it; HIP has it in its folder.
#include <hip/hiprtc.h>
