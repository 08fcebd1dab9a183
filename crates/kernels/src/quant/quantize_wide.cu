// Quantizes contiguous elements of type U, aligned to 16 bytes, to blocks of 32 of T: several blocks per wave, 16 bytes per load and store.
//
// Codes are those of quantize.cu, bit for bit.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME quantize_wide_q8_0_f32
#define T q8_0
#define U f32
#endif

#include "common/pack.cuh"
#include "quant/quantize.cuh"

// Elements of a load; lanes per block; blocks of 32 lanes at a time, and in all.
constexpr int EACH = 16 / sizeof(U), WORDS = EACH / 4, LANES = 32 / EACH, ABREAST = 32 / LANES, PASSES = 4, BLOCKS = ABREAST * PASSES;

// The low bytes of four integers of magnitude up to 255.
__device__ inline u32 low_bytes(const f32 (&whole)[4]) {
    u32 bits[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) bits[i] = __float_as_uint(add_rn(whole[i], 12582912.0f));
    return __byte_perm(__byte_perm(bits[0], bits[1], 0x0040), __byte_perm(bits[2], bits[3], 0x0040), 0x5410);
}
// Rounds halves away from zero.
__device__ inline f32 round_away(f32 x) {
    const f32 even = round_small(x), off = add_rn(x, -even);
    return fabsf(off) == 0.5f && (off < 0) == (x < 0) ? even + 2 * off : even;
}
// Rounds a number that is not negative down.
__device__ inline f32 round_down(f32 x) {
    const f32 near = round_small(x);
    return near > x ? near - 1.0f : near;
}

__device__ inline void put_word(u8 *at, u32 word) { ((u16 *)at)[0] = (u16)word, ((u16 *)at)[1] = (u16)(word >> 16); }

// A block: `lane` of LANES has EACH elements.
template <class F> struct Wide;
template <int SUM> struct WideBytes {
    static __device__ void put(u8 *block, const f32 (&x)[EACH], int lane) {
        f32 most = 0;
#pragma unroll
        for (int i = 0; i < EACH; ++i) most = fmaxf(most, fabsf(x[i]));
        const f32 d = max_of<LANES>(most) / 127.0f, factor = inverse(d);
        i32 sum = 0;
#pragma unroll
        for (int w = 0; w < WORDS; ++w) {
            f32 codes[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) codes[i] = round_away(multiply_rn(x[w * 4 + i], factor));
            const u32 word = low_bytes(codes);
            if (SUM) sum = dot4(word, 0x01010101u, sum);
            put_word(block + 2 + 2 * SUM + (lane * WORDS + w) * 4, word);
        }
        if (SUM) sum = count_of<LANES>(sum);
        if (lane == 0) put_half(block, d);
        if (SUM && lane == 0) put_half(block + 2, (f32)sum * d);
    }
};
template <> struct Wide<q8_0> : WideBytes<0> {};
template <> struct Wide<q8_1> : WideBytes<1> {};
template <> struct Wide<q4_0> {
    static __device__ void put(u8 *block, const f32 (&x)[EACH], int lane) {
        // The first of the largest magnitude, as everywhere: NaN counts as 0.
        f32 largest = x[0] == x[0] ? x[0] : 0.0f;
#pragma unroll
        for (int i = 1; i < EACH; ++i) largest = fabsf(x[i]) > fabsf(largest) ? x[i] : largest;
        const f32 d = largest_of<LANES>(largest) / -8.0f, factor = inverse(d);
#pragma unroll
        for (int w = 0; w < WORDS; ++w) {
            f32 codes[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) codes[i] = fminf(round_down(add_rn(multiply_rn(x[w * 4 + i], factor), 8.5f)), 15.0f);
            const u32 word = low_bytes(codes), other = __shfl_xor_sync(0xffffffffu, word, LANES / 2);
            if (lane < LANES / 2) put_word(block + 2 + (lane * WORDS + w) * 4, (word & 0x0f0f0f0fu) | (other & 0x0f0f0f0fu) << 4);
        }
        if (lane == 0) put_half(block, d);
    }
};

extern "C" __global__ void __launch_bounds__(256) NAME(u8 *out, const U *x, u64 blocks) {
    constexpr int PIECES = BLOCKS * T::BYTES / 16;
    static_assert(BLOCKS * T::BYTES % 16 == 0, "staged blocks are whole pieces");
    __shared__ uint4 staging[8][PIECES];
    const int lane = threadIdx.x % 32;
    uint4 *const staged = staging[threadIdx.x / 32];
#pragma unroll 1
    for (u64 first = ((u64)blockIdx.x * 8 + threadIdx.x / 32) * BLOCKS; first < blocks; first += (u64)gridDim.x * 8 * BLOCKS) {
        const int there = (int)(blocks - first < BLOCKS ? blocks - first : BLOCKS);
        Pack<U, EACH> packs[PASSES];
#pragma unroll
        for (int pass = 0; pass < PASSES; ++pass) {
            const int block = pass * ABREAST + lane / LANES;
            packs[pass] = get<U, EACH>(x + (first + (block < there ? block : 0)) * 32 + lane % LANES * EACH);
        }
#pragma unroll
        for (int pass = 0; pass < PASSES; ++pass) {
            f32 values[EACH];
#pragma unroll
            for (int i = 0; i < EACH; ++i) values[i] = widen(packs[pass].at[i]);
            Wide<T>::put((u8 *)staged + (pass * ABREAST + lane / LANES) * T::BYTES, values, lane % LANES);
        }
        __syncwarp();
        u8 *const to = out + first * T::BYTES;
        const int bytes = there * T::BYTES;
        for (int k = lane; k < bytes / 16; k += 32) ((uint4 *)to)[k] = staged[k];
        for (int k = bytes / 16 * 8 + lane; k < bytes / 2; k += 32) ((u16 *)to)[k] = ((u16 *)staged)[k];
        __syncwarp();
    }
}
