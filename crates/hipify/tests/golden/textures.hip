#include <hip/hip_runtime.h>
texture<float, hipTextureType2D, hipReadModeElementType> picture;
__global__ void read(float *out, hipTextureObject_t object) { out[0] = tex2D<float>(object, 0.5f, 0.5f); }
void bind(hipArray_t array, hipTextureObject_t *object) {
  hipResourceDesc resource = {};
  resource.resType = hipResourceTypeArray;
  resource.res.array.array = array;
  hipTextureDesc how = {};
  how.addressMode[0] = hipAddressModeClamp;
  how.filterMode = hipFilterModeLinear;
  hipCreateTextureObject(object, &resource, &how, nullptr);
}
// 2:1 WW0106 note: CUDA 12.0 removed `texture`
