// Shared by top-k and sorts: order-preserving integer keys, and rows in chunks.
//
// NaN has the largest key, both zeros the same. For descending order keys are inverted: the smallest key always comes first, and of equal
// keys the first.

#pragma once

#include "common/types.cuh"
#include "common/dims.cuh"

#define WAVES (THREADS / WAVE)
#define TILE (THREADS * ITEMS)

// A bit per lane.
#if defined(__AMDGCN__) && WAVE == 64
typedef u64 Lanes;
__device__ inline u32 count(Lanes lanes) { return __popcll(lanes); }
#else
typedef u32 Lanes;
__device__ inline u32 count(Lanes lanes) { return __popc(lanes); }
#endif

template <int BYTES> struct Bits { typedef u32 Type; };
template <> struct Bits<8> { typedef u64 Type; };
typedef Bits<sizeof(T)>::Type Key;
const int KEY_BITS = 8 * sizeof(T);
// The largest key of an element.
const Key LAST = ~(Key)0 >> (8 * sizeof(Key) - KEY_BITS);

__device__ inline Key float_key(Key bits, bool nan) {
    const Key sign = (Key)1 << (KEY_BITS - 1);
    if (bits == sign) bits = 0;
    bits ^= bits & sign ? LAST : sign;
    return nan ? LAST : bits;
}
__device__ inline Key key_of(u8 x) { return x; }
__device__ inline Key key_of(u32 x) { return x; }
__device__ inline Key key_of(i16 x) { return (u16)x ^ 0x8000u; }
__device__ inline Key key_of(i32 x) { return (u32)x ^ 0x80000000u; }
__device__ inline Key key_of(i64 x) { return (Key)((u64)x ^ 1ull << 63); }
__device__ inline Key key_of(f16 x) { return float_key(x.bits, (x.bits & 0x7fff) > 0x7c00); }
__device__ inline Key key_of(bf16 x) { return float_key(x.bits, (x.bits & 0x7fff) > 0x7f80); }
__device__ inline Key key_of(f8e4m3 x) { return float_key(x.bits, (x.bits & 0x7f) == 0x7f); }
__device__ inline Key key_of(f8e5m2 x) { return float_key(x.bits, (x.bits & 0x7f) > 0x7c); }
__device__ inline Key key_of(f32 x) { return float_key(__float_as_uint(x), x != x); }
__device__ inline Key key_of(f64 x) { return float_key((Key)__double_as_longlong(x), x != x); }

// Parameters: rows of `n` in `chunks`, of each of which the first `keep` are kept.
struct SortParams {
    u64 n;
    // Strides of a row's elements, of the values and of the indices.
    u64 stride, value_stride, index_stride;
    // Elements per row in the next launch.
    u64 next;
    u32 chunks, keep;
    // Whether the largest come first; whether indices are 64-bit.
    u32 largest, wide;
};

// Offsets of a row's elements, values and indices.
struct Row {
    u64 in, values, indices;
    __device__ Row(u32 row, const Dims &dims) : in(0), values(0), indices(0) {
        u32 rest = row;
#pragma unroll 1
        for (int d = 0; d < dims.rank; ++d) {
            u32 position = rest;
            if (d + 1 < dims.rank) {
                const u32 outer = divide<u32>(rest, dims, d);
                position = rest - outer * (u32)dims.shape[d];
                rest = outer;
            }
            in += position * dims.strides[0][d];
            values += position * dims.strides[1][d];
            indices += position * dims.strides[2][d];
        }
    }
};

// Writes nothing where no indices are wanted.
__device__ inline void write_index(const SortParams &o, void *indices, u64 p, u32 index) {
    if (!indices) return;
    if (o.wide) ((i64 *)indices)[p] = index;
    else ((u32 *)indices)[p] = index;
}

// Input and results; keys and original indices from the previous launch and for the next (null for the first and the last).
struct Call {
    const T *x;
    T *values;
    void *indices;
    const Key *from_keys;
    const u32 *from_at;
    Key *to_keys;
    u32 *to_at;

    // Loads ITEMS keys of a chunk of `n` from `start`, STEP apart; beyond the chunk they sort last. No load depends on a branch, so all are
    // in flight at once.
    template <int STEP> __device__ inline void load(const SortParams &o, u32 number, u64 start, u32 n, u32 first, const Dims &dims, Key *keys) const {
        if (from_keys) {
            const Key *const from = from_keys + number * o.n + start;
#pragma unroll
            for (int i = 0; i < ITEMS; ++i) keys[i] = from[within(first + i * STEP, n)];
        } else {
            const Row row(number, dims);
            const T *const from = x + row.in + start * o.stride;
            const Key flip = o.largest ? LAST : 0;
            T elements[ITEMS];
            if (o.stride == 1 && n == TILE) {
#pragma unroll
                for (int i = 0; i < ITEMS; ++i) elements[i] = from[first + i * STEP];
            } else {
#pragma unroll
                for (int i = 0; i < ITEMS; ++i) elements[i] = from[within(first + i * STEP, n) * o.stride];
            }
#pragma unroll
            for (int i = 0; i < ITEMS; ++i) keys[i] = key_of(elements[i]) ^ flip;
        }
        if (n == TILE) return;
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) keys[i] = first + i * STEP < n ? keys[i] : ~(Key)0;
    }
    static __device__ inline u32 within(u32 p, u32 n) { return p < n ? p : n - 1; }
    // The original index.
    __device__ inline u32 at(const SortParams &o, u32 number, u64 p) const { return from_keys ? from_at[number * o.n + p] : (u32)p; }

    // Keeps an element of a chunk at position `p`: for the next launch, or as a result.
    __device__ inline void keep(const SortParams &o, const Row &row, u32 number, u32 chunk, u32 p, Key key, u32 at) const {
        if (!to_keys) return write(o, row, p, at);
        const u64 position = number * o.next + (u64)chunk * o.keep + p;
        to_keys[position] = key;
        to_at[position] = at;
    }
    __device__ inline void write(const SortParams &o, const Row &row, u64 p, u32 at) const {
        if (values) values[row.values + p * o.value_stride] = x[row.in + at * o.stride];
        write_index(o, indices, row.indices + p * o.index_stride, at);
    }
};

#define SORT_PARAMETERS const T *x, T *values, void *indices, const Key *from_keys, const u32 *from_at, Key *to_keys, u32 *to_at, SortParams o, Dims dims
#define SORT_CALL const Call call = {x, values, indices, from_keys, from_at, to_keys, to_at}
