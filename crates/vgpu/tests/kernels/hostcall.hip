// Kernels that ask things of the host, as headers of HIP and CUDA let them.
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
typedef unsigned long long u64;
#ifndef ABI
#define ABI 500
#endif
// The switches that the device library reads.
#define SWITCH(type, name, value)                                                    \
    static __device__ const type mine_##name asm("mine_" #name) = value;             \
    extern "C" __attribute__((visibility("hidden"), alias("mine_" #name))) __device__ const type name;
SWITCH(unsigned char, __oclc_wavefrontsize64, WAVE64)
SWITCH(unsigned, __oclc_ISA_version, ISA)
SWITCH(unsigned, __oclc_ABI_version, ABI)

extern "C" {
__device__ int printf(const char*, ...);
__device__ u64 __ockl_fprintf_stderr_begin();
__device__ u64 __ockl_fprintf_append_args(u64, unsigned, u64, u64, u64, u64, u64, u64, u64, unsigned);
__device__ u64 __ockl_fprintf_append_string_n(u64, const char*, u64, unsigned);
__device__ void __ockl_grid_sync();
__device__ void __ockl_multi_grid_sync();
__device__ int __ockl_grid_is_valid();
__device__ unsigned __ockl_multi_grid_num_grids();
__device__ unsigned __ockl_multi_grid_grid_rank();
__device__ unsigned __ockl_multi_grid_size();
__device__ void* __ockl_dm_alloc(u64);
__device__ void __ockl_dm_dealloc(u64);
typedef long two __attribute__((ext_vector_type(2)));
__device__ two __ockl_hostcall_preview(unsigned, u64, u64, u64, u64, u64, u64, u64, u64);
}
__device__ unsigned item() { return __builtin_amdgcn_workitem_id_x(); }
__device__ unsigned group() { return __builtin_amdgcn_workgroup_id_x(); }

extern "C" __global__ void conversions() {
    printf("d %d %+d %05d i %i u %u\n", -42, 42, 42, -7, -42);
    printf("x %x X %X # %#x %#X o %o #%#o\n", 42, 42, 42, 42, 42, 42);
    printf("ld %ld lld %lld lu %lu zu %zu jd %jd td %td hd %hd hhu %hhu hx %hx\n", -5000000000l, -9223372036854775807ll - 1, ~0ul,
           (unsigned long)7, -3l, 9l, 0x1ffff, 0x1ff, -1);
    printf("c %c s %s p %p %p %%\n", 'A', "text", (void*)0x1234, (void*)0);
    printf("f %f F %F e %e E %E g %g G %G a %a\n", 1.5, -2.25, 123450.0, 1.2345e-5, 0.0001, 1e20, 3.0);
    printf("[%10.3f] [%-10.1f] [%010.2f] [%10s] [%-10s] [%.2s]\n", 1.5, 1.5, 1.5, "hi", "hi", "hello");
    printf("[%*d] [%-*d] [%.*f] [%.*s]\n", 7, 7, 7, 7, 3, 3.14159, 3, "hello");
    float f = 0.1f;
    char c = 'z';
    short s = -5;
    printf("float %f char %c short %d\n", f, c, s);
}

extern "C" __global__ void counts(int* out) {
    out[0] = printf("nothing else\n");
    out[1] = printf("%d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d\n", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
                    16, 17, 18, 19, 20);
}

extern "C" __global__ void strings(const char* text, u64 length) {
    printf("%d: <%s> and <%s> %s\n", (int)length, text, text, (const char*)0);
}

#define ABC "abcdefghijklmnopqrstuvwxyz"
#define HUNDRED ABC ABC ABC "abcdefghijklmnopqrstuv"
extern "C" __global__ void long_format() { printf(HUNDRED "%d" HUNDRED "%.1f" HUNDRED "\n", 1, 2.5); }

extern "C" __global__ void lanes() {
    for (unsigned turn = 0; turn < 3; ++turn) printf("at %u %u %u %u\n", group(), item(), turn, group() * 1000 + item());
}

extern "C" __global__ void divergent() {
    unsigned i = item();
    if (i % 3 == 0) printf("three %u\n", i);
    else if (i % 3 == 1) printf("one %u of %.1f\n", i, i / 2.0);
    if (i == 63) printf("last %u\n", i);
    if (i < 5)
        for (unsigned n = 0; n < i; ++n) printf("loop %u %u\n", i, n);
}

extern "C" __global__ void one_line() {
    if (item() == 0) printf("%u\n", group());
}

__device__ u64 length_of(const char* text) {
    u64 n = 1;
    while (*text++) ++n;
    return n;
}

// As HIP's header does it.
__device__ __attribute__((noinline)) void fails(const char* what, const char* file, unsigned line, const char* function) {
    const char* format = "%s:%u: %s: Device-side assertion `%s' failed.\n";
    u64 m = __ockl_fprintf_stderr_begin();
    m = __ockl_fprintf_append_string_n(m, format, length_of(format), 0);
    m = __ockl_fprintf_append_string_n(m, file, length_of(file), 0);
    m = __ockl_fprintf_append_args(m, 1, line, 0, 0, 0, 0, 0, 0, 0);
    m = __ockl_fprintf_append_string_n(m, function, length_of(function), 0);
    __ockl_fprintf_append_string_n(m, what, length_of(what), 1);
    __builtin_trap();
}

extern "C" __global__ void asserts(u64 x) {
    if (x != 42 && item() == 5) fails("x == 42", "kernels.cu", 7, "asserts");
}

extern "C" __global__ void service(u64 which, u64 first) {
    if (item() < 2) __ockl_hostcall_preview(which, first, 0, 0, 0, 0, 0, 0, 0);
}

extern "C" __global__ void spoils(u64 word, u64 value) {
    volatile u64* buffer = ((volatile u64**)__builtin_amdgcn_implicitarg_ptr())[10];
    if (item() == 0) buffer[word] = value;
    printf("spoiled %u\n", item());
}

// Rounds: all count, all meet, all look. What is not seen is counted as an error.
template <typename Sync> __device__ void rounds(unsigned* counter, unsigned* errors, Sync sync) {
    unsigned groups = __builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x();
    for (unsigned n = 0; n < 5; ++n) {
        if (item() == 0) __hip_atomic_fetch_add(counter + n, 1u, __ATOMIC_SEQ_CST, __HIP_MEMORY_SCOPE_AGENT);
        sync(n);
        unsigned seen = __hip_atomic_load(counter + n, __ATOMIC_SEQ_CST, __HIP_MEMORY_SCOPE_AGENT);
        if (seen != groups) __hip_atomic_fetch_add(errors + group(), 1u, __ATOMIC_SEQ_CST, __HIP_MEMORY_SCOPE_AGENT);
    }
}

// gfx12 has no global wave sync.
#if ISA < 12000
extern "C" __global__ void grid_sync(unsigned* counter, unsigned* errors) {
    rounds(counter, errors, [](unsigned) { __ockl_grid_sync(); });
}

extern "C" __global__ void multi_grid_sync(unsigned* counter, unsigned* errors) {
    rounds(counter, errors, [](unsigned) { __ockl_multi_grid_sync(); });
}
#endif

// The newer device library's barrier, without the global wave sync: a counter behind the hidden argument.
extern "C" __global__ void counter_sync(unsigned* counter, unsigned* errors) {
    rounds(counter, errors, [](unsigned) {
        unsigned* info = ((unsigned**)__builtin_amdgcn_implicitarg_ptr())[11];
        __builtin_amdgcn_s_barrier();
        if (item() == 0) {
            unsigned members = info[10];
            unsigned before = __hip_atomic_fetch_add(info + 8, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
            if ((before & 0xffff) == members - 1) {
                __hip_atomic_fetch_add(info + 8, 0x10000 - members, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
            } else {
                while ((__hip_atomic_load(info + 8, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT) ^ before) < 0x10000)
                    __builtin_amdgcn_s_sleep(1);
            }
        }
        __builtin_amdgcn_s_barrier();
    });
}

extern "C" __global__ void grid_facts(unsigned* out) {
    if (item() + group() != 0 || !__ockl_grid_is_valid()) return;
    out[0] = 1;
    out[1] = __ockl_multi_grid_num_grids();
    out[2] = __ockl_multi_grid_grid_rank();
    out[3] = __ockl_multi_grid_size();
}

extern "C" __global__ void allocates(unsigned** pointers, u64 bytes) {
    unsigned i = group() * 64 + item();
    unsigned* mine = (unsigned*)__ockl_dm_alloc(bytes);
    pointers[i] = mine;
    for (unsigned n = 0; n < bytes / 4; ++n) mine[n] = i;
}

extern "C" __global__ void uses(unsigned** pointers, unsigned* sums, u64 bytes) {
    unsigned i = group() * 64 + item(), sum = 0;
    for (unsigned n = 0; n < bytes / 4; ++n) sum += pointers[i][n];
    sums[i] = sum;
    __ockl_dm_dealloc((u64)pointers[i]);
}
