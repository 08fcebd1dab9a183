// What a kernel needs of this header is in the prelude; the host API has no place in device code.
#pragma once
#include "math.h"
