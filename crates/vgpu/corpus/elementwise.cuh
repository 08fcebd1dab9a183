// One thread per element.
#pragma once

#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)

#define UNARY_TO(name, T, R, expression)                                                                                           \
    extern "C" __global__ void name(const T *in, R *out, int n) {                                                                  \
        int i = INDEX;                                                                                                             \
        if (i < n) {                                                                                                               \
            T x = in[i];                                                                                                           \
            out[i] = (R)(expression);                                                                                              \
        }                                                                                                                          \
    }
#define UNARY(name, T, expression) UNARY_TO(name, T, T, expression)

#define BINARY_TO(name, T, R, expression)                                                                                          \
    extern "C" __global__ void name(const T *left, const T *right, R *out, int n) {                                                \
        int i = INDEX;                                                                                                             \
        if (i < n) {                                                                                                               \
            T a = left[i], b = right[i];                                                                                           \
            out[i] = (R)(expression);                                                                                              \
        }                                                                                                                          \
    }
#define BINARY(name, T, expression) BINARY_TO(name, T, T, expression)

#define TERNARY(name, T, expression)                                                                                               \
    extern "C" __global__ void name(const T *first, const T *second, const T *third, T *out, int n) {                              \
        int i = INDEX;                                                                                                             \
        if (i < n) {                                                                                                               \
            T a = first[i], b = second[i], c = third[i];                                                                           \
            out[i] = (T)(expression);                                                                                              \
        }                                                                                                                          \
    }
