// Constant memory, shared memory of both kinds, device variables, fences, atomics.
__constant__ float table[64];
__device__ int counter;
__device__ float4 vectors[2] = {{1, 2, 3, 4}, {5, 6, 7, 8}};
extern __shared__ float dynamic[];
extern "C" __global__ void spaces(float *x, unsigned *u, unsigned long long *l, double *d) {
    __shared__ float fixed[32][33];
    fixed[threadIdx.y][threadIdx.x] = table[threadIdx.x & 63];
    dynamic[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    atomicAdd(&counter, 1);
    x[0] = fixed[threadIdx.x & 31][0] + dynamic[0] + vectors[1].w;
    __threadfence();
    u[0] = atomicMax(u + 1, 3u) + atomicMin(u + 1, 3u) + atomicCAS(u + 1, 1u, 2u) + atomicExch(u + 1, 4u) + atomicInc(u + 2, 7u);
    u[1] = atomicAnd(u, 3u) + atomicOr(u, 3u) + atomicXor(u, 3u) + atomicSub(u, 1u) + atomicDec(u, 7u) + atomicAdd_block(u, 1u);
    atomicAdd(x, 1.0f);
    atomicAdd(d, 1.0);
    atomicAdd_system(l, 1ull);
    __threadfence_block();
    __threadfence_system();
}
