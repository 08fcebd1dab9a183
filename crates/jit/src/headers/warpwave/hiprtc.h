// What hipRTC's own headers lack of CUDA.
#pragma once
