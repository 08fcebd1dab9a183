// Every integer type to every type.
#include "casts.cuh"

CASTS(u8)
CASTS(i8)
CASTS(u16)
CASTS(i16)
CASTS(u32)
CASTS(i32)
CASTS(u64)
CASTS(i64)
