// Quantizes elements of type U to blocks of T: 32 lanes per block or group.
//
// Formats with blocks of 32 round as defined by GGUF. Those of 256 search for the scales of least error, weighted towards large values.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME quantize_q4_0_f32
#define OP_quantize
#define T q4_0
#define U f32
#endif

#include "common/pack.cuh"
#include "quant/quantize.cuh"

struct QuantizeParams {
    // Row and column stride in elements; row pitch of the blocks in bytes.
    u64 x_row, x_stride, out_row;
    u64 rows, columns;
    // Whether x is contiguous in rows that are aligned to 16 bytes.
    u64 wide;
};

// Stores the low 4 bits of 32 codes in 16 bytes: lane i's and lane i + 16's.
__device__ inline void put_nibbles(u8 *at, u32 code, int lane) {
    const u32 other = __shfl_xor_sync(0xffffffffu, code, 16);
    if (lane < 16) at[lane] = (u8)((code & 15u) | (other & 15u) << 4);
}
__device__ inline void put_fifth_bits(u8 *at, u32 code, int lane) {
    const u32 bits = bits_of<32>((code >> 4 & 1u) << lane);
    if (lane < 2) ((u16 *)at)[lane] = (u16)(bits >> 16 * lane);
}

// A block of 32: one value per lane.
template <class F> struct Encode;
template <int MOST> struct Symmetric {
    // The value of largest magnitude gets code 0; ties round up.
    static __device__ u32 code(f32 x, f32 &d) {
        const f32 zero = (MOST + 1) / 2;
        d = largest_of<32>(x) / -zero;
        const f32 code = truncf(add_rn(multiply_rn(x, inverse(d)), zero + 0.5f));
        return (u32)fminf(code, (f32)MOST);
    }
};
template <int MOST> struct FromMinimum {
    static __device__ u32 code(f32 x, f32 &d, f32 &m) {
        m = min_of<32>(x);
        d = (max_of<32>(x) - m) / (f32)MOST;
        return (u32)fminf(truncf(add_rn(multiply_rn(add_rn(x, -m), inverse(d)), 0.5f)), (f32)MOST);
    }
};
template <> struct Encode<q4_0> {
    static __device__ void put(u8 *block, f32 x, int lane) {
        f32 d;
        const u32 code = Symmetric<15>::code(x, d);
        if (lane == 0) put_half(block, d);
        put_nibbles(block + 2, code, lane);
    }
};
template <> struct Encode<q5_0> {
    static __device__ void put(u8 *block, f32 x, int lane) {
        f32 d;
        const u32 code = Symmetric<31>::code(x, d);
        if (lane == 0) put_half(block, d);
        put_fifth_bits(block + 2, code, lane);
        put_nibbles(block + 6, code, lane);
    }
};
template <> struct Encode<q4_1> {
    static __device__ void put(u8 *block, f32 x, int lane) {
        f32 d, m;
        const u32 code = FromMinimum<15>::code(x, d, m);
        if (lane < 2) put_half(block + 2 * lane, lane ? m : d);
        put_nibbles(block + 4, code, lane);
    }
};
template <> struct Encode<q5_1> {
    static __device__ void put(u8 *block, f32 x, int lane) {
        f32 d, m;
        const u32 code = FromMinimum<31>::code(x, d, m);
        if (lane < 2) put_half(block + 2 * lane, lane ? m : d);
        put_fifth_bits(block + 4, code, lane);
        put_nibbles(block + 8, code, lane);
    }
};
template <> struct Encode<q8_0> {
    static __device__ void put(u8 *block, f32 x, int lane) {
        const f32 d = fabsf(largest_of<32>(x)) / 127.0f;
        if (lane == 0) put_half(block, d);
        block[2 + lane] = (u8)(i32)roundf(multiply_rn(x, inverse(d)));
    }
};
template <> struct Encode<q8_1> {
    static __device__ void put(u8 *block, f32 x, int lane) {
        const f32 d = fabsf(largest_of<32>(x)) / 127.0f;
        const i32 code = (i32)roundf(multiply_rn(x, inverse(d))), sum = count_of<32>(code);
        if (lane < 2) put_half(block + 2 * lane, lane ? (f32)sum * d : d);
        block[4 + lane] = (u8)code;
    }
};

// Values of a table, the boundaries between them, and the scale of least error weighted by squares, over several ranges of codes: COUNT
// lanes with EACH values share a scale.
__device__ const f32 IQ4_VALUES[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
__device__ inline u32 iq4_code(f32 x) {
    const f32 between[15] = {-115.5f, -93.5f, -74, -57, -42, -28.5f, -16, -4.5f, 7, 19, 31.5f, 45.5f, 61, 79, 101};
    u32 code = 0;
#pragma unroll
    for (int i = 0; i < 15; ++i) code += x > between[i];
    return code;
}
template <int COUNT, int EACH> __device__ inline f32 iq4_scale(const f32 (&x)[EACH]) {
    // Not from 0: clang 19 for AMD then drops the second fabsf.
    f32 largest = x[0];
#pragma unroll
    for (int i = 1; i < EACH; ++i) largest = fabsf(x[i]) > fabsf(largest) ? x[i] : largest;
    largest = largest_of<COUNT>(largest);
    f32 best = 0, scale = 0;
#pragma unroll 1
    for (int step = -7; step <= 7; ++step) {
        const f32 factor = ((f32)step - 127.0f) / largest;
        f32 product = 0, square = 0;
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            // Relative to the largest, so that squares do not overflow. If all are 0, the gain is NaN and not taken.
            const f32 size = x[i] / largest, value = IQ4_VALUES[iq4_code(factor * x[i])];
            product = fmaf(size * size * size, value, product);
            square = fmaf(size * size * value, value, square);
        }
        product = sum_of<COUNT>(product), square = sum_of<COUNT>(square);
        const f32 gain = product * product / square;
        if (gain > best) best = gain, scale = product / square * largest;
    }
    return scale;
}
template <> struct Encode<iq4_nl> {
    static __device__ void put(u8 *block, f32 x, int lane) {
        const f32 one[1] = {x}, d = iq4_scale<32>(one);
        f16 half = {to_f16(d)};
        if (lane == 0) put_half(block, d);
        put_nibbles(block + 2, iq4_code(x * inverse(widen(half))), lane);
    }
};
template <> struct Encode<mxfp4> {
    // The largest value's power of two becomes 4; of equally near numbers the smaller is taken.
    static __device__ void put(u8 *block, f32 x, int lane) {
        const u32 power = __float_as_uint(fabsf(largest_of<32>(x))) >> 23, e = power > 2 ? power - 2 : 0;
        Scale runs[2];
        const u8 scale = (u8)e;
        mxfp4::scales(runs, &scale, 0, SeparateScales{}, 0, 0);
        const f32 between[7] = {0.5f, 1.5f, 2.5f, 3.5f, 5, 7, 10};
        u32 code = 0;
#pragma unroll
        for (int i = 0; i < 7; ++i) code += fabsf(x) > between[i] * runs[0].d;
        if (code && x < 0) code += 8;
        if (lane == 0) *block = scale;
        put_nibbles(block + 1, code, lane);
    }
};

// A block of 256: lane i has values 8i to 8i + 7. LANES lanes have a run with a scale and a minimum.
template <int MOST, int LANES> struct Runs {
    u32 codes[8];
    f32 d, m;

    // Searches d * code - m of least error, over several code ranges.
    __device__ void search(const f32 (&x)[8]) {
        f32 squares = 0, low = 0, high = x[0];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            squares = fmaf(x[i], x[i], squares);
            low = fminf(low, x[i]);
            high = fmaxf(high, x[i]);
        }
        squares = sum_of<LANES>(squares), low = min_of<LANES>(low), high = max_of<LANES>(high);
        const f32 usual = sqrtf(squares / (8 * LANES));
        f32 weights = 0, values = 0, best = __uint_as_float(0x7f800000u);
        f32 weight[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            weight[i] = usual + fabsf(x[i]);
            weights += weight[i];
            values = fmaf(weight[i], x[i], values);
        }
        weights = sum_of<LANES>(weights), values = sum_of<LANES>(values);
        d = (high - low) / MOST;
        m = -low;
        // No early exit: other lanes may continue, and all take part in the shuffles.
#pragma unroll 1
        for (int step = 0; step <= 20; ++step) {
            const f32 factor = ((f32)(MOST - 1) + 0.1f * (f32)step) / (high - low);
            f32 code[8], sum = 0, square = 0, product = 0;
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                code[i] = round_clamped(factor * (x[i] - low), 0, MOST);
                const f32 weighted = weight[i] * code[i];
                sum += weighted;
                square = fmaf(weighted, code[i], square);
                product = fmaf(weighted, x[i], product);
            }
            sum = sum_of<LANES>(sum), square = sum_of<LANES>(square), product = sum_of<LANES>(product);
            // Linear regression of values over codes; the intercept must not be positive. Equal codes have no slope.
            const f32 spread = weights * square - sum * sum;
            f32 slope = (weights * product - values * sum) / spread, start = (square * values - sum * product) / spread;
            if (!(start <= 0) || !(spread > 1e-4f * weights * square)) start = 0, slope = product / square;
            f32 error = 0;
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const f32 off = fmaf(slope, code[i], start) - x[i];
                error = fmaf(weight[i] * off, off, error);
            }
            error = sum_of<LANES>(error);
            if (high > low && error < best && slope > 0) best = error, d = slope, m = -start;
        }
    }

    // Stores the block's halves and 6-bit scales; then computes the codes for the stored scales.
    __device__ void put_scales(u8 *block, const f32 (&x)[8], int lane) {
        search(x);
        const f32 most_d = max_of<32>(d), most_m = max_of<32>(m);
        const f32 block_d = most_d / 63, block_m = most_m / 63;
        const u32 part_d = (u32)round_clamped(d * inverse(block_d), 0, 63), part_m = (u32)round_clamped(m * inverse(block_m), 0, 63);
        const u32 later_d = __shfl_xor_sync(0xffffffffu, part_d, 16), later_m = __shfl_xor_sync(0xffffffffu, part_m, 16);
        if (lane < 2) put_half(block + 2 * lane, lane ? block_m : block_d);
        if (lane < 16 && lane % 4 == 0) {
            block[4 + lane / 4] = (u8)(part_d | later_d >> 4 << 6);
            block[8 + lane / 4] = (u8)(part_m | later_m >> 4 << 6);
            block[12 + lane / 4] = (u8)((later_d & 15u) | later_m << 4);
        }
        set_codes(x, block_d, part_d, block_m, part_m);
    }

    // Computes the codes for scales as stored.
    __device__ void set_codes(const f32 (&x)[8], f32 block_d, u32 part_d, f32 block_m, u32 part_m) {
        f16 half_d = {to_f16(block_d)}, half_m = {to_f16(block_m)};
        const f32 scale = widen(half_d) * (f32)part_d, minimum = widen(half_m) * (f32)part_m;
#pragma unroll
        for (int i = 0; i < 8; ++i) codes[i] = scale > 0 ? (u32)round_clamped((x[i] + minimum) / scale, 0, MOST) : 0;
    }

    // Stores the low 4 bits of two runs.
    __device__ void put_low(u8 *at, int lane) const {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const u32 other = __shfl_xor_sync(0xffffffffu, codes[i], 4);
            if (lane / 4 % 2 == 0) at[lane / 8 * 32 + lane % 4 * 8 + i] = (u8)((codes[i] & 15u) | (other & 15u) << 4);
        }
    }
};
template <> struct Encode<q4_k> {
    static __device__ void put(u8 *block, const f32 (&x)[8], int lane) {
        Runs<15, 4> runs;
        runs.put_scales(block, x, lane);
        runs.put_low(block + 16, lane);
    }
};
template <> struct Encode<q5_k> {
    static __device__ void put(u8 *block, const f32 (&x)[8], int lane) {
        Runs<31, 4> runs;
        runs.put_scales(block, x, lane);
        runs.put_low(block + 48, lane);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const u32 bits = bits_of<32, 4>((runs.codes[i] >> 4) << lane / 4);
            if (lane < 4) block[16 + lane * 8 + i] = (u8)bits;
        }
    }
};
// Stores the low 2 bits of four runs of 32 per 32 bytes.
__device__ inline void put_quarters(u8 *at, const u32 (&codes)[8], int lane) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const u32 bits = bits_of<16, 4>((codes[i] & 3u) << lane / 4 % 4 * 2);
        if (lane / 4 % 4 == 0) at[lane / 16 * 32 + lane % 4 * 8 + i] = (u8)bits;
    }
}
template <> struct Encode<q2_k> {
    static __device__ void put(u8 *block, const f32 (&x)[8], int lane) {
        Runs<3, 2> runs;
        runs.search(x);
        const f32 d = max_of<32>(runs.d) / 15, m = max_of<32>(runs.m) / 15;
        const u32 part_d = (u32)round_clamped(runs.d * inverse(d), 0, 15), part_m = (u32)round_clamped(runs.m * inverse(m), 0, 15);
        if (lane % 2 == 0) block[lane / 2] = (u8)(part_d | part_m << 4);
        if (lane < 2) put_half(block + 80 + 2 * lane, lane ? m : d);
        runs.set_codes(x, d, part_d, m, part_m);
        put_quarters(block + 16, runs.codes, lane);
    }
};

// Two lanes have a run of 16 with codes from -ZERO to ZERO - 1.
template <int ZERO> struct SignedRuns {
    static __device__ f32 search(const f32 (&x)[8]) {
        // Not from 0: clang 19 for AMD then drops the second fabsf.
        f32 largest = x[0];
#pragma unroll
        for (int i = 1; i < 8; ++i) largest = fabsf(x[i]) > fabsf(largest) ? x[i] : largest;
        largest = largest_of<2>(largest);
        f32 best = 0, scale = 0;
#pragma unroll 1
        for (int step = -9; step <= 9; ++step) {
            const f32 factor = -((f32)ZERO + 0.1f * (f32)step) / largest;
            f32 product = 0, square = 0;
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                // Relative to the largest, so that squares do not overflow. If all are 0, the gain is NaN and not taken.
                const f32 size = x[i] / largest, code = round_clamped(factor * x[i], -ZERO, ZERO - 1);
                product = fmaf(size * size * size, code, product);
                square = fmaf(size * size * code, code, square);
            }
            product = sum_of<2>(product), square = sum_of<2>(square);
            const f32 gain = product * product / square;
            if (gain > best) best = gain, scale = product / square * largest;
        }
        return scale;
    }
};
template <> struct Encode<q6_k> {
    static __device__ void put(u8 *block, const f32 (&x)[8], int lane) {
        const f32 own = SignedRuns<32>::search(x), largest = largest_of<32>(own), d = largest / -128;
        const f32 part = round_clamped(own * inverse(d), -128, 127);
        if (lane == 0) put_half(block + 208, d);
        if (lane % 2 == 0) block[192 + lane / 2] = (u8)(i32)part;
        f16 half = {to_f16(d)};
        const f32 scale = widen(half) * part;
        const int part_of_half = lane / 4 % 4;
        u8 *low = block + lane / 16 * 64 + part_of_half % 2 * 32 + lane % 4 * 8, *high = block + 128 + lane / 16 * 32 + lane % 4 * 8;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const u32 code = (u32)(round_clamped(x[i] * inverse(scale), -32, 31) + 32);
            const u32 other = __shfl_xor_sync(0xffffffffu, code, 8);
            if (part_of_half < 2) low[i] = (u8)((code & 15u) | (other & 15u) << 4);
            const u32 bits = bits_of<16, 4>((code >> 4) << 2 * part_of_half);
            if (part_of_half == 0) high[i] = (u8)bits;
        }
    }
};

template <> struct Encode<q3_k> {
    static __device__ void put(u8 *block, const f32 (&x)[8], int lane) {
        const f32 own = SignedRuns<4>::search(x), d = largest_of<32>(own) / -32;
        const f32 part = round_clamped(own * inverse(d), -32, 31);
        const u32 bits = (u32)((i32)part + 32), later = __shfl_xor_sync(0xffffffffu, bits, 16);
        const u32 highs = bits_of<32, 8>((bits >> 4) << lane / 8 * 2);
        if (lane < 16 && lane % 2 == 0) block[96 + lane / 2] = (u8)((bits & 15u) | (later & 15u) << 4);
        if (lane < 8 && lane % 2 == 0) block[104 + lane / 2] = (u8)highs;
        if (lane == 0) put_half(block + 108, d);
        f16 half = {to_f16(d)};
        const f32 factor = inverse(widen(half) * part);
        u32 codes[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            codes[i] = (u32)(round_clamped(x[i] * factor, -4, 3) + 4);
            const u32 thirds = bits_of<32, 4>((codes[i] >> 2) << lane / 4);
            if (lane < 4) block[lane * 8 + i] = (u8)thirds;
        }
        put_quarters(block + 32, codes, lane);
    }
};
template <> struct Encode<q8_k> {
    static __device__ void put(u8 *block, const f32 (&x)[8], int lane) {
        f32 largest = x[0];
#pragma unroll
        for (int i = 1; i < 8; ++i) largest = fabsf(x[i]) > fabsf(largest) ? x[i] : largest;
        largest = largest_of<32>(largest);
        const f32 factor = largest != 0 ? -127.0f / largest : 0;
        i32 sum = 0;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const i32 code = (i32)round_clamped(multiply_rn(x[i], factor), -127, 127);
            block[4 + lane * 8 + i] = (u8)code;
            sum += code;
        }
        sum = count_of<2>(sum);
        if (lane == 0) *(f32 *)block = inverse(factor);
        if (lane % 2 == 0) *(u16 *)(block + 260 + lane) = (u16)sum;
    }
};
// Four lanes have a run of 32.
template <> struct Encode<iq4_xs> {
    static __device__ void put(u8 *block, const f32 (&x)[8], int lane) {
        const f32 own = iq4_scale<4>(x), d = largest_of<32>(own) / -32;
        const f32 part = round_clamped(own * inverse(d), -32, 31);
        const u32 bits = (u32)((i32)part + 32), lows = bits_of<32, 4>((bits & 15u) << lane / 4 * 4);
        const u32 highs = bits_of<32, 4>((bits >> 4) << lane / 4 * 2);
        if (lane == 0) put_half(block, d);
        if (lane < 2) block[2 + lane] = (u8)(highs >> 8 * lane);
        if (lane < 4) block[4 + lane] = (u8)(lows >> 8 * lane);
        f16 half = {to_f16(d)};
        const f32 factor = inverse(widen(half) * part);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const u32 code = iq4_code(x[i] * factor), later = __shfl_xor_sync(0xffffffffu, code, 2);
            if (lane % 4 < 2) block[8 + lane / 4 * 16 + lane % 4 * 8 + i] = (u8)(code | later << 4);
        }
    }
};

#if defined(OP_quantize)
// Eight consecutive blocks at a time, which go through shared memory: as 16-byte stores where the result is aligned.
template <class F, class X> __device__ inline void blocks(u8 *out, const X *x, const QuantizeParams &p) {
    __shared__ uint4 staging[(8 * F::BYTES + 15) / 16];
    u8 *const staged = (u8 *)staging;
    const u64 each = p.columns / F::BLOCK, all = p.rows * each;
    const int lane = threadIdx.x % 32, own = threadIdx.x / 32;
#pragma unroll 1
    for (u64 first = (u64)blockIdx.x * 8; first < all; first += (u64)gridDim.x * 8) {
        // The last block is repeated: all lanes take part in the shuffles.
        const u64 i = first + own < all ? first + own : all - 1;
        const u64 row = i / each, block = i % each;
        const X *from = x + row * p.x_row + block * F::BLOCK * p.x_stride;
        if constexpr (F::BLOCK == 32) {
            Encode<F>::put(staged + own * F::BYTES, widen(from[lane * p.x_stride]), lane);
        } else {
            f32 values[8];
            if (p.wide) {
                constexpr int EACH = 16 / sizeof(X) < 8 ? 16 / sizeof(X) : 8;
#pragma unroll
                for (int k = 0; k < 8; k += EACH) {
                    const Pack<X, EACH> pack = get<X, EACH>(from + lane * 8 + k);
#pragma unroll
                    for (int j = 0; j < EACH; ++j) values[k + j] = widen(pack.at[j]);
                }
            } else {
#pragma unroll
                for (int k = 0; k < 8; ++k) values[k] = widen(from[(lane * 8 + k) * p.x_stride]);
            }
            Encode<F>::put(staged + own * F::BYTES, values, lane);
        }
        __syncthreads();
        u8 *to = out + first * F::BYTES;
        const int bytes = (int)(all - first < 8 ? all - first : 8) * F::BYTES, whole = (u64)to % 16 == 0 ? bytes / 16 : 0;
        for (int k = threadIdx.x; k < whole; k += 256) ((uint4 *)to)[k] = staging[k];
        for (int k = whole * 16 + threadIdx.x; k < bytes; k += 256) to[k] = staged[k];
        __syncthreads();
    }
}
extern "C" __global__ void __launch_bounds__(256) NAME(u8 *out, void *, u8 *, const U *x, QuantizeParams p, Groups) {
    blocks<T, U>(out, x, p);
}

#elif defined(OP_quantize_rows)
// One block per row.
extern "C" __global__ void __launch_bounds__(256) NAME(u8 *out, void *scales, u8 *, const U *x, QuantizeParams p, Groups) {
    __shared__ f32 each[8];
    for (u64 row = blockIdx.x; row < p.rows; row += gridDim.x) {
        f32 most = 0;
        for (u64 i = threadIdx.x; i < p.columns; i += 256) most = fmaxf(most, fabsf(widen(x[row * p.x_row + i * p.x_stride])));
        most = max_of<32>(most);
        __syncthreads();
        if (threadIdx.x % 32 == 0) each[threadIdx.x / 32] = most;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 8; ++i) most = fmaxf(most, each[i]);
        const f32 d = most / 127.0f, factor = inverse(d);
        if (threadIdx.x == 0) ((f32 *)scales)[row] = d;
        for (u64 i = threadIdx.x; i < p.columns; i += 256) {
            out[row * p.out_row + i] = (u8)(i32)roundf(multiply_rn(widen(x[row * p.x_row + i * p.x_stride]), factor));
        }
    }
}

#elif defined(OP_quantize_groups)
// Codes use the scale as stored.
extern "C" __global__ void __launch_bounds__(256)
NAME(u8 *out, void *scales, u8 *zeros, const U *x, QuantizeParams p, Groups groups) {
    const u32 units = 1u << groups.shift;
    const u64 each = groups.in_row, all = p.rows * each;
    const int lane = threadIdx.x % 32;
    for (u64 i = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / 32; i < all; i += (u64)gridDim.x * blockDim.x / 32) {
        const u64 row = i / each, group = i % each;
        const U *from = x + row * p.x_row + group * units * 32 * p.x_stride;
        f32 low = 0, high = 0;
        for (u32 k = 0; k < units; ++k) {
            const f32 value = widen(from[(k * 32 + lane) * p.x_stride]);
            low = fminf(low, value), high = fmaxf(high, value);
        }
        low = min_of<32>(low), high = max_of<32>(high);
        f16 half = {to_f16(zeros ? (high - low) / 15.0f : fmaxf(high / 7.0f, low / -8.0f))};
        const f32 factor = inverse(widen(half)), zero = zeros ? round_clamped(-low * factor, 0, 15) : 8;
        if (lane == 0) ((f16 *)scales)[i] = half;
        if (zeros && lane == 0) zeros[i] = (u8)zero;
        for (u32 k = 0; k < units; ++k) {
            const u32 code = (u32)round_clamped(widen(from[(k * 32 + lane) * p.x_stride]) * factor + zero, 0, 15);
            put_nibbles(out + row * p.out_row + (group * units + k) * 16, code, lane);
        }
    }
}
#endif
