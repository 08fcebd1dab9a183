// bf16.
#include "elementwise.cuh"
#include <cuda_bf16.h>

BINARY(add_bf16, __nv_bfloat16, a + b)
BINARY(sub_bf16, __nv_bfloat16, a - b)
BINARY(mul_bf16, __nv_bfloat16, a *b)
BINARY(div_bf16, __nv_bfloat16, a / b)
BINARY(min_bf16, __nv_bfloat16, __hmin(a, b))
BINARY(max_bf16, __nv_bfloat16, __hmax(a, b))
TERNARY(fma_bf16, __nv_bfloat16, __hfma(a, b, c))
UNARY(neg_bf16, __nv_bfloat16, -x)
UNARY(abs_bf16, __nv_bfloat16, __habs(x))
UNARY(exp_bf16, __nv_bfloat16, __float2bfloat16(expf(__bfloat162float(x))))
UNARY(relu_bf16, __nv_bfloat16, x > __float2bfloat16(0.0f) ? x : __float2bfloat16(0.0f))
// n counts pairs.
BINARY(add_bf16x2, __nv_bfloat162, __hadd2(a, b))
BINARY(mul_bf16x2, __nv_bfloat162, __hmul2(a, b))
