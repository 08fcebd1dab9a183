// What programs use of HIP. Each check prints its name; the program ends with 1 if one failed.
//
// It needs no device library: kernels use the compiler's builtins instead of HIP's device headers.
#include <hip/hip_runtime_api.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))

#define CHECK(call)                                                                                \
  do {                                                                                             \
    hipError_t error = (call);                                                                     \
    if (error != hipSuccess) {                                                                     \
      std::printf("line %d: %s returned %s\n", __LINE__, #call, hipGetErrorString(error));         \
      return false;                                                                                \
    }                                                                                              \
  } while (0)
#define EXPECT(condition)                                                                          \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      std::printf("line %d: expected %s\n", __LINE__, #condition);                                 \
      return false;                                                                                \
    }                                                                                              \
  } while (0)

// The block size is passed: the compiler reads it from hidden arguments or from the packet, as the code object's version has it.
__device__ unsigned index_of(unsigned block) {
  return __builtin_amdgcn_workgroup_id_x() * block + __builtin_amdgcn_workitem_id_x();
}

__global__ void add(const float *a, const float *b, float *sum, unsigned n) {
  unsigned i = index_of(256);
  if (i < n) sum[i] = a[i] + b[i];
}

__global__ void increment(unsigned *values, unsigned n) {
  unsigned i = index_of(64);
  if (i < n) values[i] += 1;
}

__global__ void count(unsigned *counter) { __atomic_fetch_add(counter, 1u, __ATOMIC_RELAXED); }

extern __shared__ unsigned dynamic_lds[];

__global__ void sum_of_group(const unsigned *values, unsigned *sums) {
  unsigned lane = __builtin_amdgcn_workitem_id_x(), group = __builtin_amdgcn_workgroup_id_x();
  dynamic_lds[lane] = values[group * 256 + lane];
  for (unsigned half = 128; half > 0; half /= 2) {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
    if (lane < half) dynamic_lds[lane] += dynamic_lds[lane + half];
  }
  if (lane == 0) sums[group] = dynamic_lds[0];
}

// Indices that the compiler does not know keep the array in scratch.
__global__ void through_scratch(const unsigned *order, unsigned *out) {
  volatile unsigned array[32];
  for (unsigned i = 0; i < 32; ++i) array[order[i]] = i * 3;
  unsigned lane = __builtin_amdgcn_workitem_id_x();
  out[lane] = array[lane % 32];
}

// All workgroups wait for each other, which only a cooperative launch promises to work.
__global__ void meet(unsigned *arrived, unsigned groups, unsigned *out) {
  unsigned lane = __builtin_amdgcn_workitem_id_x();
  if (lane == 0) {
    __atomic_fetch_add(arrived, 1u, __ATOMIC_ACQ_REL);
    while (__atomic_load_n(arrived, __ATOMIC_ACQUIRE) < groups) __builtin_amdgcn_s_sleep(1);
    out[__builtin_amdgcn_workgroup_id_x()] = __atomic_load_n(arrived, __ATOMIC_RELAXED);
  }
}

__device__ unsigned global_value = 7;

__global__ void read_global(unsigned *out) { *out = global_value; }

static bool properties() {
  int count = 0;
  CHECK(hipGetDeviceCount(&count));
  EXPECT(count >= 1);
  hipDeviceProp_t p;
  CHECK(hipGetDeviceProperties(&p, 0));
  EXPECT(std::strncmp(p.gcnArchName, "gfx", 3) == 0 && p.totalGlobalMem > 0 && p.multiProcessorCount > 0);
  int version = 0;
  CHECK(hipRuntimeGetVersion(&version));
  std::printf("%d device(s), %s, %s, HIP %d\n", count, p.name, p.gcnArchName, version);
  return true;
}

static bool vector_add() {
  for (unsigned n : {1u, 255u, 256u, 1000u, 100003u}) {
    std::vector<float> a(n), b(n), sum(n);
    for (unsigned i = 0; i < n; ++i) a[i] = i * 0.5f, b[i] = 3.0f - i;
    float *device[3];
    for (float *&d : device) CHECK(hipMalloc((void **)&d, n * sizeof(float)));
    CHECK(hipMemcpy(device[0], a.data(), n * sizeof(float), hipMemcpyHostToDevice));
    CHECK(hipMemcpy(device[1], b.data(), n * sizeof(float), hipMemcpyHostToDevice));
    add<<<dim3((n + 255) / 256), dim3(256)>>>(device[0], device[1], device[2], n);
    CHECK(hipGetLastError());
    CHECK(hipMemcpy(sum.data(), device[2], n * sizeof(float), hipMemcpyDeviceToHost));
    for (unsigned i = 0; i < n; ++i) EXPECT(sum[i] == a[i] + b[i]);
    for (float *d : device) CHECK(hipFree(d));
  }
  return true;
}

static bool copies_of_all_sizes() {
  const size_t sizes[] = {1, 2, 3, 4, 7, 8, 15, 16, 17, 63, 64, 255, 256, 1000, 4095, 4096, 4097, 16383, 16384, 16385, 65536, 100001, 1 << 20, (4 << 20) + 13};
  const size_t room = (4 << 20) + 64;
  unsigned char *first, *second;
  CHECK(hipMalloc((void **)&first, room));
  CHECK(hipMalloc((void **)&second, room));
  std::vector<unsigned char> from(room), to(room);
  for (size_t i = 0; i < room; ++i) from[i] = (unsigned char)(i * 131 + (i >> 8));
  for (size_t size : sizes)
    for (size_t shift : {0, 1, 5}) {
      CHECK(hipMemset(second, 0xEE, size + 16));
      CHECK(hipMemcpy(first + shift, from.data() + shift, size, hipMemcpyHostToDevice));
      CHECK(hipMemcpy(second + 3, first + shift, size, hipMemcpyDeviceToDevice));
      std::memset(to.data(), 0, size + 32);
      CHECK(hipMemcpy(to.data() + 1, second, size + 8, hipMemcpyDeviceToHost));
      EXPECT(to[0] == 0 && to[1] == 0xEE && to[3] == 0xEE && to[4 + size] == 0xEE && to[9 + size] == 0);
      EXPECT(std::memcmp(to.data() + 4, from.data() + shift, size) == 0);
    }
  CHECK(hipFree(first));
  CHECK(hipFree(second));
  return true;
}

static bool memsets_of_all_sizes() {
  const size_t room = 1 << 20;
  unsigned char *device;
  CHECK(hipMalloc((void **)&device, room));
  std::vector<unsigned char> host(room);
  for (size_t size : {1, 3, 4, 64, 1001, 65537, 1 << 19})
    for (size_t shift : {0, 1, 6}) {
      // HIP 5.2 computes a negative size for fewer bytes than are missing to the next multiple of 8.
      if (size + shift < 8 && shift > 0) continue;
      CHECK(hipMemset(device, 0, room));
      CHECK(hipMemset(device + shift, 0xA7, size));
      CHECK(hipMemcpy(host.data(), device, room, hipMemcpyDeviceToHost));
      for (size_t i = 0; i < size + shift + 64; ++i) EXPECT(host[i] == (i >= shift && i < shift + size ? 0xA7 : 0));
    }
  CHECK(hipMemsetD32((hipDeviceptr_t)device, 0x12345678, 1001));
  CHECK(hipMemsetD16((hipDeviceptr_t)(device + 4004), 0xBEEF, 33));
  CHECK(hipMemcpy(host.data(), device, 4004 + 66, hipMemcpyDeviceToHost));
  for (int i = 0; i < 1001; ++i) EXPECT(((unsigned *)host.data())[i] == 0x12345678);
  for (int i = 0; i < 33; ++i) EXPECT(((unsigned short *)(host.data() + 4004))[i] == 0xBEEF);
  CHECK(hipFree(device));
  return true;
}

static bool rectangles() {
  const size_t width = 100, height = 37, host_pitch = 128;
  unsigned char *device;
  size_t pitch;
  CHECK(hipMallocPitch((void **)&device, &pitch, width, height));
  std::vector<unsigned char> from(host_pitch * height), to(host_pitch * height, 9);
  for (size_t i = 0; i < from.size(); ++i) from[i] = (unsigned char)(i * 7);
  CHECK(hipMemcpy2D(device, pitch, from.data(), host_pitch, width, height, hipMemcpyHostToDevice));
  CHECK(hipMemcpy2D(to.data(), host_pitch, device, pitch, width, height, hipMemcpyDeviceToHost));
  for (size_t y = 0; y < height; ++y)
    for (size_t x = 0; x < host_pitch; ++x) EXPECT(to[y * host_pitch + x] == (x < width ? from[y * host_pitch + x] : 9));
  CHECK(hipFree(device));
  return true;
}

static bool streams_and_events() {
  const unsigned n = 50000;
  unsigned *host, *device;
  CHECK(hipHostMalloc((void **)&host, n * sizeof(unsigned), 0));
  CHECK(hipMalloc((void **)&device, n * sizeof(unsigned)));
  for (unsigned i = 0; i < n; ++i) host[i] = i;
  hipStream_t streams[2];
  hipEvent_t start, ready, end;
  for (hipStream_t &stream : streams) CHECK(hipStreamCreate(&stream));
  for (hipEvent_t *event : {&start, &ready, &end}) CHECK(hipEventCreate(event));
  CHECK(hipEventRecord(start, streams[0]));
  CHECK(hipMemcpyAsync(device, host, n * sizeof(unsigned), hipMemcpyHostToDevice, streams[0]));
  for (int i = 0; i < 10; ++i) increment<<<dim3((n + 63) / 64), dim3(64), 0, streams[0]>>>(device, n);
  CHECK(hipEventRecord(ready, streams[0]));
  // The other stream goes on where this one ends.
  CHECK(hipStreamWaitEvent(streams[1], ready, 0));
  for (int i = 0; i < 5; ++i) increment<<<dim3((n + 63) / 64), dim3(64), 0, streams[1]>>>(device, n);
  CHECK(hipMemcpyAsync(host, device, n * sizeof(unsigned), hipMemcpyDeviceToHost, streams[1]));
  CHECK(hipEventRecord(end, streams[1]));
  CHECK(hipEventSynchronize(end));
  for (unsigned i = 0; i < n; ++i) EXPECT(host[i] == i + 15);
  float time = -1;
  CHECK(hipEventElapsedTime(&time, start, end));
  EXPECT(time > 0);
  CHECK(hipStreamSynchronize(streams[0]));
  EXPECT(hipStreamQuery(streams[1]) == hipSuccess);
  for (hipEvent_t event : {start, ready, end}) CHECK(hipEventDestroy(event));
  for (hipStream_t stream : streams) CHECK(hipStreamDestroy(stream));
  CHECK(hipHostFree(host));
  CHECK(hipFree(device));
  return true;
}

static std::atomic<int> called{0};

static void on_stream(hipStream_t, hipError_t status, void *data) {
  if (status == hipSuccess) called += (int)(size_t)data;
}

static bool callbacks() {
  hipStream_t stream;
  unsigned *device;
  CHECK(hipStreamCreate(&stream));
  CHECK(hipMalloc((void **)&device, 4));
  CHECK(hipMemsetAsync(device, 0, 4, stream));
  count<<<dim3(3), dim3(64), 0, stream>>>(device);
  CHECK(hipStreamAddCallback(stream, on_stream, (void *)5, 0));
  CHECK(hipStreamAddCallback(stream, on_stream, (void *)7, 0));
  CHECK(hipStreamSynchronize(stream));
  EXPECT(called == 12);
  unsigned counted = 0;
  CHECK(hipMemcpy(&counted, device, 4, hipMemcpyDeviceToHost));
  EXPECT(counted == 192);
  CHECK(hipStreamDestroy(stream));
  CHECK(hipFree(device));
  return true;
}

static bool host_memory() {
  const unsigned n = 3000;
  unsigned *managed, *mapped, *address;
  CHECK(hipMallocManaged((void **)&managed, n * sizeof(unsigned), hipMemAttachGlobal));
  CHECK(hipHostMalloc((void **)&mapped, n * sizeof(unsigned), hipHostMallocMapped));
  std::vector<unsigned> own(n + 1024);
  CHECK(hipHostRegister(own.data(), n * sizeof(unsigned), hipHostRegisterDefault));
  for (unsigned *memory : {managed, mapped, own.data()}) {
    for (unsigned i = 0; i < n; ++i) memory[i] = i * 11;
    address = memory;
    if (memory != managed) CHECK(hipHostGetDevicePointer((void **)&address, memory, 0));
    increment<<<dim3((n + 63) / 64), dim3(64)>>>(address, n);
    CHECK(hipDeviceSynchronize());
    for (unsigned i = 0; i < n; ++i) EXPECT(memory[i] == i * 11 + 1);
  }
  // HIP 5.2 ends the program if devices have the host's address of registered memory.
  int version = 0;
  CHECK(hipRuntimeGetVersion(&version));
  if (version >= 50300000) CHECK(hipHostUnregister(own.data()));
  CHECK(hipHostFree(mapped));
  CHECK(hipFree(managed));
  return true;
}

static bool lds_and_scratch() {
  std::vector<unsigned> values(256 * 20), sums(20), order(32), out(100);
  for (unsigned i = 0; i < values.size(); ++i) values[i] = i * i;
  for (unsigned i = 0; i < 32; ++i) order[i] = (i * 5 + 3) % 32;
  unsigned *device;
  CHECK(hipMalloc((void **)&device, 256 * 20 * 4 + 4096));
  unsigned *result = device + 256 * 20;
  CHECK(hipMemcpy(device, values.data(), values.size() * 4, hipMemcpyHostToDevice));
  sum_of_group<<<dim3(20), dim3(256), 1024>>>(device, result);
  CHECK(hipMemcpy(sums.data(), result, 80, hipMemcpyDeviceToHost));
  for (unsigned group = 0; group < 20; ++group) {
    unsigned sum = 0;
    for (unsigned i = 0; i < 256; ++i) sum += values[group * 256 + i];
    EXPECT(sums[group] == sum);
  }
  CHECK(hipMemcpy(device, order.data(), 128, hipMemcpyHostToDevice));
  through_scratch<<<dim3(1), dim3(100)>>>(device, result);
  CHECK(hipMemcpy(out.data(), result, 400, hipMemcpyDeviceToHost));
  for (unsigned i = 0; i < 32; ++i)
    for (unsigned lane = order[i]; lane < 100; lane += 32) EXPECT(out[lane] == i * 3);
  CHECK(hipFree(device));
  return true;
}

static bool cooperative() {
  unsigned groups = 8, *device, host[9] = {0};
  CHECK(hipMalloc((void **)&device, sizeof host));
  CHECK(hipMemset(device, 0, sizeof host));
  unsigned *out = device + 1;
  void *arguments[] = {&device, &groups, &out};
  CHECK(hipLaunchCooperativeKernel((const void *)meet, dim3(groups), dim3(64), arguments, 0, 0));
  CHECK(hipMemcpy(host, device, sizeof host, hipMemcpyDeviceToHost));
  for (unsigned i = 0; i <= groups; ++i) EXPECT(host[i] == groups);
  CHECK(hipFree(device));
  return true;
}

static bool symbols() {
  unsigned value = 0, *device;
  CHECK(hipMalloc((void **)&device, 4));
  CHECK(hipMemcpyFromSymbol(&value, (const void *)&global_value, 4, 0, hipMemcpyDeviceToHost));
  EXPECT(value == 7);
  value = 4711;
  CHECK(hipMemcpyToSymbol((const void *)&global_value, &value, 4, 0, hipMemcpyHostToDevice));
  read_global<<<dim3(1), dim3(1)>>>(device);
  value = 0;
  CHECK(hipMemcpy(&value, device, 4, hipMemcpyDeviceToHost));
  EXPECT(value == 4711);
  CHECK(hipFree(device));
  return true;
}

static const char *module_path;

static bool module() {
  std::FILE *file = std::fopen(module_path, "rb");
  EXPECT(file);
  std::vector<char> code(1 << 20);
  size_t bytes = std::fread(code.data(), 1, code.size(), file);
  std::fclose(file);
  hipModule_t module;
  hipFunction_t function;
  CHECK(hipModuleLoadData(&module, code.data()));
  EXPECT(bytes > 0 && hipModuleGetFunction(&function, module, "no_such_kernel") == hipErrorNotFound);
  CHECK(hipModuleGetFunction(&function, module, "scale"));
  hipDeviceptr_t factor;
  size_t size = 0;
  CHECK(hipModuleGetGlobal(&factor, &size, module, "factor"));
  EXPECT(size == 4);
  unsigned three = 3, n = 777, *device;
  CHECK(hipMemcpyHtoD(factor, &three, 4));
  std::vector<unsigned> host(n);
  for (unsigned i = 0; i < n; ++i) host[i] = i + 1;
  CHECK(hipMalloc((void **)&device, n * 4));
  CHECK(hipMemcpy(device, host.data(), n * 4, hipMemcpyHostToDevice));
  void *arguments[] = {&device, &n};
  CHECK(hipModuleLaunchKernel(function, (n + 63) / 64, 1, 1, 64, 1, 1, 0, 0, arguments, nullptr));
  CHECK(hipMemcpy(host.data(), device, n * 4, hipMemcpyDeviceToHost));
  for (unsigned i = 0; i < n; ++i) EXPECT(host[i] == 3 * (i + 1));
  CHECK(hipFree(device));
  CHECK(hipModuleUnload(module));
  return true;
}

static bool graph() {
  const unsigned n = 640;
  unsigned *device;
  std::vector<unsigned> host(n);
  hipStream_t stream;
  hipGraph_t graph;
  hipGraphExec_t executable;
  CHECK(hipMalloc((void **)&device, n * 4));
  CHECK(hipMemset(device, 0, n * 4));
  CHECK(hipStreamCreate(&stream));
  CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal));
  for (int i = 0; i < 3; ++i) increment<<<dim3(n / 64), dim3(64), 0, stream>>>(device, n);
  CHECK(hipStreamEndCapture(stream, &graph));
  CHECK(hipGraphInstantiate(&executable, graph, nullptr, nullptr, 0));
  for (int i = 0; i < 4; ++i) CHECK(hipGraphLaunch(executable, stream));
  CHECK(hipStreamSynchronize(stream));
  CHECK(hipMemcpy(host.data(), device, n * 4, hipMemcpyDeviceToHost));
  for (unsigned value : host) EXPECT(value == 12);
  CHECK(hipGraphExecDestroy(executable));
  CHECK(hipGraphDestroy(graph));
  CHECK(hipStreamDestroy(stream));
  CHECK(hipFree(device));
  return true;
}

static bool devices() {
  int count = 0;
  CHECK(hipGetDeviceCount(&count));
  for (int device = 0; device < count; ++device) {
    unsigned *memory, value = 40 + device;
    CHECK(hipSetDevice(device));
    CHECK(hipMalloc((void **)&memory, 4));
    CHECK(hipMemcpy(memory, &value, 4, hipMemcpyHostToDevice));
    increment<<<dim3(1), dim3(64)>>>(memory, 1);
    CHECK(hipMemcpy(&value, memory, 4, hipMemcpyDeviceToHost));
    EXPECT(value == 41u + device);
    hipPointerAttribute_t attributes;
    CHECK(hipPointerGetAttributes(&attributes, memory));
    EXPECT(attributes.device == device && attributes.devicePointer == memory);
    CHECK(hipFree(memory));
  }
  CHECK(hipSetDevice(0));
  return true;
}

#define NAMED(check) {#check, check}

int main(int argc, char **argv) {
  const struct {
    const char *name;
    bool (*run)();
  } checks[] = {
      NAMED(properties),   NAMED(vector_add),      NAMED(copies_of_all_sizes), NAMED(memsets_of_all_sizes), NAMED(rectangles),
      NAMED(streams_and_events), NAMED(callbacks), NAMED(host_memory),         NAMED(lds_and_scratch),      NAMED(cooperative),
      NAMED(symbols),      NAMED(module),          NAMED(graph),               NAMED(devices),
  };
  if (argc != 2) return 2;
  module_path = argv[1];
  int failed = 0;
  for (const auto &check : checks) {
    bool passed = check.run();
    std::printf("%s %s\n", passed ? "ok" : "FAILED", check.name);
    std::fflush(stdout);
    failed += !passed;
  }
  return failed != 0;
}
