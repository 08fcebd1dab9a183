// What HIP has since 6.2 and the tests' headers lack, after its documented signature: it takes masks of 64 bits and no others.
#pragma once

template <typename T> __device__ T __shfl_down_sync(unsigned long long mask, T value, unsigned delta, int width = 64);
template <typename T> __device__ T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 64) = delete;
