// threadIdx, blockIdx, blockDim, gridDim, warpSize.
//
// The members are properties, so that `threadIdx.x` is an unsigned int wherever it stands and nothing is read before it is used.
#pragma once

namespace __warpwave {
// Code object version 5 keeps the number of blocks in x, y and z at the start of the implicit arguments.
__WW_DEVICE unsigned int block_count(int axis) {
    return ((const __attribute__((address_space(4))) unsigned int *)__builtin_amdgcn_implicitarg_ptr())[axis];
}

#define __WW_INDEX(name, value_x, value_y, value_z)                                                                                \
    struct name {                                                                                                                  \
        __declspec(property(get = get_x)) unsigned int x;                                                                          \
        __declspec(property(get = get_y)) unsigned int y;                                                                          \
        __declspec(property(get = get_z)) unsigned int z;                                                                          \
        __device__ __attribute__((always_inline)) unsigned int get_x() const { return value_x; }                                   \
        __device__ __attribute__((always_inline)) unsigned int get_y() const { return value_y; }                                   \
        __device__ __attribute__((always_inline)) unsigned int get_z() const { return value_z; }                                   \
        __device__ __attribute__((always_inline)) operator dim3() const { return dim3(get_x(), get_y(), get_z()); }                \
        __device__ __attribute__((always_inline)) operator uint3() const { return uint3{get_x(), get_y(), get_z()}; }              \
    };

__WW_INDEX(thread_idx, __builtin_amdgcn_workitem_id_x(), __builtin_amdgcn_workitem_id_y(), __builtin_amdgcn_workitem_id_z())
__WW_INDEX(block_idx, __builtin_amdgcn_workgroup_id_x(), __builtin_amdgcn_workgroup_id_y(), __builtin_amdgcn_workgroup_id_z())
__WW_INDEX(block_dim, __builtin_amdgcn_workgroup_size_x(), __builtin_amdgcn_workgroup_size_y(), __builtin_amdgcn_workgroup_size_z())
__WW_INDEX(grid_dim, block_count(0), block_count(1), block_count(2))
#undef __WW_INDEX
} // namespace __warpwave

static __device__ const __warpwave::thread_idx threadIdx = {};
static __device__ const __warpwave::block_idx blockIdx = {};
static __device__ const __warpwave::block_dim blockDim = {};
static __device__ const __warpwave::grid_dim gridDim = {};

// A constant, where CUDA has a variable: it may size arrays and unroll loops.
static constexpr int warpSize = WARPWAVE_WAVE_SIZE;
