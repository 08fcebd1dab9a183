// The half types under the name HIP gives their header.
#pragma once
#include "../cuda_fp16.h"
