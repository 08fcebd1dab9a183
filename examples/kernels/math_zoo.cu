// A tour of the math functions and intrinsics that kernels use: one output per function, so that a reference can check each.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <float.h>
#include <math.h>
#include <stdint.h>

#define PUT(expression) out[k++ * n + i] = (expression)

extern "C" __global__ void float_zoo(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = in[i], a, b;
    int k = 0, e;
    PUT(sinf(x)); PUT(cosf(x)); PUT(tanf(x)); PUT(asinf(x)); PUT(acosf(x)); PUT(atanf(x)); PUT(atan2f(x, 0.5f));
    PUT(sinhf(x)); PUT(coshf(x)); PUT(tanhf(x)); PUT(asinhf(x)); PUT(acoshf(x)); PUT(atanhf(x));
    PUT(expf(x)); PUT(exp2f(x)); PUT(exp10f(x)); PUT(expm1f(x)); PUT(logf(x)); PUT(log2f(x)); PUT(log10f(x)); PUT(log1pf(x));
    PUT(powf(x, 1.5f)); PUT(sqrtf(x)); PUT(rsqrtf(x)); PUT(cbrtf(x)); PUT(rcbrtf(x)); PUT(hypotf(x, 2.0f)); PUT(rhypotf(x, 2.0f));
    PUT(erff(x)); PUT(erfcf(x)); PUT(erfcxf(x)); PUT(erfinvf(x)); PUT(erfcinvf(x)); PUT(normcdff(x)); PUT(normcdfinvf(x));
    PUT(lgammaf(x)); PUT(tgammaf(x)); PUT(j0f(x)); PUT(j1f(x)); PUT(jnf(3, x)); PUT(y0f(x)); PUT(y1f(x)); PUT(ynf(3, x));
    PUT(cyl_bessel_i0f(x)); PUT(cyl_bessel_i1f(x)); PUT(sinpif(x)); PUT(cospif(x));
    PUT(floorf(x)); PUT(ceilf(x)); PUT(truncf(x)); PUT(roundf(x)); PUT(rintf(x)); PUT(nearbyintf(x));
    PUT(fabsf(x)); PUT(fmodf(x, 0.7f)); PUT(remainderf(x, 0.7f)); PUT(fdimf(x, 1.0f)); PUT(fmaxf(x, 0.0f)); PUT(fminf(x, 0.0f));
    PUT(copysignf(1.0f, x)); PUT(nextafterf(x, 9.0f)); PUT(ldexpf(x, 3)); PUT(scalbnf(x, -2)); PUT(logbf(x)); PUT((float)ilogbf(x));
    PUT(fmaf(x, x, 1.0f)); PUT(norm3df(x, 1.0f, 2.0f)); PUT(rnorm4df(x, 1.0f, 2.0f, 3.0f));
    sincosf(x, &a, &b); PUT(a); PUT(b);
    sincospif(x, &a, &b); PUT(a); PUT(b);
    a = frexpf(x, &e); PUT(a); PUT((float)e);
    b = modff(x, &a); PUT(a); PUT(b);
    a = remquof(x, 0.7f, &e); PUT(a); PUT((float)(e & 7));
    PUT(__expf(x)); PUT(__logf(x)); PUT(__sinf(x)); PUT(__cosf(x)); PUT(__powf(x, 1.5f)); PUT(__fdividef(x, 3.0f)); PUT(__log2f(x));
    PUT(__frcp_rn(x)); PUT(__fsqrt_rn(x)); PUT(__fmaf_rn(x, x, 1.0f)); PUT(__fadd_rn(x, 1.0f)); PUT(__fmul_rn(x, 3.0f));
    PUT(__saturatef(x)); PUT((float)__float2int_rn(x)); PUT((float)__float2int_rz(x)); PUT((float)__float2int_ru(x));
    PUT((float)__float2int_rd(x)); PUT((float)__float2uint_rz(x)); PUT(__int_as_float(__float_as_int(x) + 1));
    PUT(isnan(x) ? 1.0f : 0.0f); PUT(isinf(x) ? 1.0f : 0.0f); PUT(isfinite(x) ? 1.0f : 0.0f); PUT(signbit(x) ? 1.0f : 0.0f);
    PUT(fmaxf(x, -FLT_MAX)); PUT(isinf(x + INFINITY) ? 1.0f : 0.0f); PUT(max(x, 1.0f)); PUT(min(x, 1.0f)); PUT(abs(x));
    PUT(__half2float(__float2half(x))); PUT(__half2float(hexp(__float2half(x)))); PUT(__bfloat162float(__float2bfloat16(x)));
}

extern "C" __global__ void double_zoo(const double *in, double *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double x = in[i], a, b;
    int k = 0, e;
    PUT(sin(x)); PUT(cos(x)); PUT(tan(x)); PUT(asin(x)); PUT(acos(x)); PUT(atan(x)); PUT(atan2(x, 0.5)); PUT(sinh(x)); PUT(cosh(x));
    PUT(tanh(x)); PUT(exp(x)); PUT(exp2(x)); PUT(exp10(x)); PUT(expm1(x)); PUT(log(x)); PUT(log2(x)); PUT(log10(x)); PUT(log1p(x));
    PUT(pow(x, 1.5)); PUT(sqrt(x)); PUT(rsqrt(x)); PUT(cbrt(x)); PUT(hypot(x, 2.0)); PUT(erf(x)); PUT(erfc(x)); PUT(erfinv(x));
    PUT(normcdf(x)); PUT(lgamma(x)); PUT(tgamma(x)); PUT(j0(x)); PUT(y1(x)); PUT(floor(x)); PUT(ceil(x)); PUT(trunc(x));
    PUT(round(x)); PUT(rint(x)); PUT(fabs(x)); PUT(fmod(x, 0.7)); PUT(fmax(x, 0.0)); PUT(fmin(x, 0.0)); PUT(copysign(1.0, x));
    PUT(fma(x, x, 1.0)); PUT(ldexp(x, 3)); sincos(x, &a, &b); PUT(a); PUT(b); a = frexp(x, &e); PUT(a); PUT((double)e);
    PUT(__dadd_rn(x, 1.0)); PUT(__dmul_rn(x, 3.0)); PUT(__fma_rn(x, x, 1.0)); PUT((double)__double2int_rn(x));
    PUT((double)__double2ll_rz(x)); PUT(__hiloint2double(__double2hiint(x), __double2loint(x))); PUT((double)__double2float_rz(x));
}

extern "C" __global__ void integer_zoo(const uint32_t *in, uint32_t *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    uint32_t x = in[i], y = x * 2654435761u;
    uint64_t w = ((uint64_t)y << 32) | x;
    int k = 0;
    PUT(__popc(x)); PUT(__popcll(w)); PUT(__clz((int)x)); PUT(__clzll((long long)w)); PUT(__ffs((int)x)); PUT(__ffsll((long long)w));
    PUT(__brev(x)); PUT((uint32_t)__brevll(w)); PUT(__byte_perm(x, y, 0x5410)); PUT(__byte_perm(x, y, x & 0x7777));
    PUT(__funnelshift_l(x, y, 7)); PUT(__funnelshift_r(x, y, 7)); PUT(__funnelshift_lc(x, y, 40)); PUT(__funnelshift_rc(x, y, 40));
    PUT(__umulhi(x, y)); PUT((uint32_t)__mulhi((int)x, (int)y)); PUT((uint32_t)__umul64hi(w, w)); PUT(__umul24(x, y));
    PUT((uint32_t)__mul24((int)x, (int)y)); PUT((uint32_t)__dp4a((int)x, (int)y, 5)); PUT(__dp4a(x, y, 5u)); PUT(__sad((int)x, (int)y, 1u));
    PUT(min(x, y)); PUT(max(x, y)); PUT((uint32_t)min((int)x, (int)y)); PUT((uint32_t)abs((int)x)); PUT(__ldg(in + i));
    PUT((uint32_t)__uhadd(x, y)); PUT((uint32_t)__rhadd((int)x, (int)y));
}

// Votes and shuffles: each is written for a warp of warpSize lanes; blocks are whole warps.
extern "C" __global__ void warp_zoo(const int *in, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int x = in[i];
    int k = 0;
    PUT(__shfl_sync(0xffffffff, x, 3)); PUT(__shfl_sync(0xffffffff, x, 3, 8)); PUT(__shfl_up_sync(0xffffffff, x, 2));
    PUT(__shfl_up_sync(0xffffffff, x, 2, 16)); PUT(__shfl_down_sync(0xffffffff, x, 2)); PUT(__shfl_down_sync(0xffffffff, x, 2, 16));
    PUT(__shfl_xor_sync(0xffffffff, x, 1)); PUT(__shfl_xor_sync(0xffffffff, x, 5, 8));
    PUT((int)__shfl_xor_sync(0xffffffff, (double)x, 4)); PUT((int)__shfl_down_sync(0xffffffff, (long long)x, 1));
    PUT(__popcll(__ballot_sync(0xffffffff, x & 1))); PUT(__any_sync(0xffffffff, x > 100)); PUT(__all_sync(0xffffffff, x >= 0));
    __syncwarp();
    PUT(__syncthreads_count(x & 1)); PUT(__syncthreads_or(x > 100)); PUT(__syncthreads_and(x >= 0));
    __threadfence();
    __threadfence_block();
}

extern "C" __global__ void atomic_zoo(int *words, unsigned int *unsigneds, unsigned long long *longs, float *floats, double *doubles) {
    int x = (int)threadIdx.x;
    atomicAdd(&words[0], x); atomicSub(&words[1], x); atomicMin(&words[2], x); atomicMax(&words[3], x); atomicAnd(&words[4], x);
    atomicOr(&words[5], x); atomicXor(&words[6], x); atomicExch(&words[7], x); atomicCAS(&words[8], 0, x);
    atomicInc(&unsigneds[0], 17u); atomicDec(&unsigneds[1], 17u); atomicAdd(&unsigneds[2], 1u); atomicMin(&unsigneds[3], (unsigned int)x);
    atomicAdd(&longs[0], 1ull); atomicMax(&longs[1], (unsigned long long)x); atomicCAS(&longs[2], 0ull, 1ull);
    atomicAdd(&floats[0], 1.0f); atomicAdd(&doubles[0], 1.0);
}
