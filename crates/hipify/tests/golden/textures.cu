#include <cuda_runtime.h>
texture<float, cudaTextureType2D, cudaReadModeElementType> picture;
__global__ void read(float *out, cudaTextureObject_t object) { out[0] = tex2D<float>(object, 0.5f, 0.5f); }
void bind(cudaArray_t array, cudaTextureObject_t *object) {
  cudaResourceDesc resource = {};
  resource.resType = cudaResourceTypeArray;
  resource.res.array.array = array;
  cudaTextureDesc how = {};
  how.addressMode[0] = cudaAddressModeClamp;
  how.filterMode = cudaFilterModeLinear;
  cudaCreateTextureObject(object, &resource, &how, nullptr);
}
