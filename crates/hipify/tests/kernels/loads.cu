// Loads and stores with cache hints.
extern "C" __global__ void loads(const float4 *__restrict__ in, float4 *out, const int *i, unsigned long long *l) {
    float4 v = __ldg(&in[threadIdx.x]);
    v.x += __ldcg(&in[0]).x + __ldca(&in[1]).y + __ldcs(&in[2]).z + __ldlu(&in[3]).w;
    v.y += __ldg(i) + __ldcv(i + 1);
    __stcg(&out[0], v);
    __stcs(&out[1], v);
    __stwb(&out[2], v);
    __stwt(&out[3], v);
    *l = __ldg(l + 1);
}
