// Every floating-point type to every type.
#include "casts.cuh"

CASTS(f16)
CASTS(bf16)
CASTS(f32)
CASTS(f64)
