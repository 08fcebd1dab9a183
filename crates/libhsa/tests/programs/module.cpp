// A module that the program loads from a file.
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))

extern "C" __device__ unsigned factor = 1;

extern "C" __global__ void scale(unsigned *values, unsigned n) {
  unsigned i = __builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x();
  if (i < n) values[i] *= factor;
}
