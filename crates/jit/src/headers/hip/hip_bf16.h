// The bfloat16 types under the name HIP gives their header.
#pragma once
#include "../cuda_bf16.h"
