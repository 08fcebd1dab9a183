#pragma once

#include "common/types.cuh"

// Strides of a view of (sequence, token, head, element). Only sequences can be further apart than 32 bits hold, which saves registers.
struct HeadStrides {
    i64 sequence;
    i32 token, head, element, padding;
    __device__ i64 at(i64 s, i64 t, i64 h) const { return s * sequence + t * token + h * head; }
};
