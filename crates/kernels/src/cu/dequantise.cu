// Weights of blocks of T as numbers of type U. A thread has the same words of both runs of a unit: two times 16 bytes of the result,
// and that UNROLL times.

template <class R> union Piece {
    uint4 raw;
    R at[16 / sizeof(R)];
    __device__ Piece() {}
};

struct Rows {
    // Bytes from row to row of the blocks; elements from row to row and from column to column of the result.
    u64 weights_row, out_row, out_step;
    u64 rows, units;
    // Whether 16 bytes of the result lie together, aligned.
    u32 wide, unused;
};

template <class F, class R> __device__ inline void pieces(R *out, const u8 *weights, const Beside &beside, const Rows &p) {
    // Words of each run that a thread has; threads of a unit; units of a block of threads.
    constexpr u32 WORDS = 4 / sizeof(R), EACH = 4 / WORDS, TILE = 256 * UNROLL / EACH;
    for (u64 row = blockIdx.y; row < p.rows; row += gridDim.y) {
        for (u64 unit0 = (u64)blockIdx.x * TILE; unit0 < p.units; unit0 += (u64)gridDim.x * TILE) {
            const u8 *from = weights + row * p.weights_row + unit0 / units_of<F>() * F::BYTES;
            R *to = out + row * p.out_row + unit0 * 32 * p.out_step;
            const u32 units = p.units - unit0 < TILE ? (u32)(p.units - unit0) : TILE;
            Unit<F, WORDS, false> data[UNROLL];
            Scale scales[UNROLL][2];
#pragma unroll
            for (int i = 0; i < UNROLL; ++i) {
                const u32 u = (i * 256 + threadIdx.x) / EACH;
                const int unit = u % units_of<F>(), k = threadIdx.x % EACH * WORDS;
                if (u >= units) break;
                const u8 *block = from + u / units_of<F>() * F::BYTES;
                data[i].load(block, (u32)(u64)block, unit, k);
                F::scales(scales[i], block, unit, beside, row, (u32)unit0 + u);
            }
#pragma unroll
            for (int i = 0; i < UNROLL; ++i) {
                const u32 u = (i * 256 + threadIdx.x) / EACH;
                const int unit = u % units_of<F>(), k = threadIdx.x % EACH * WORDS;
                if (u >= units) break;
#pragma unroll
                for (int run = 0; run < 2; ++run) {
                    Piece<R> result;
#pragma unroll
                    for (int w = 0; w < WORDS; ++w) {
                        f32 values[4];
                        to_floats<F>(data[i].codes(unit, run, w, k), values);
#pragma unroll
                        for (int j = 0; j < 4; ++j) {
                            const Scale scale = scales[i][run];
                            const f32 value = F::MINIMUM ? fmaf(scale.d, values[j], scale.m) : scale.d * values[j];
                            result.at[w * 4 + j] = Narrow<R>::from(value);
                        }
                    }
                    const u32 column = u / units_of<F>() * F::BLOCK + F::first(unit) + run * F::GAP + k * 4;
                    if (p.wide) {
                        __stwb((uint4 *)(to + column), result.raw);
                    } else {
#pragma unroll
                        for (int j = 0; j < WORDS * 4; ++j) to[(column + j) * p.out_step] = result.at[j];
                    }
                }
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256, 8)
SYMBOL(NAME, _pieces)(U *out, const u8 *weights, const void *scales, const u8 *zeros, Groups groups, Rows p) {
    pieces<T, U>(out, weights, Beside{scales, zeros, groups}, p);
}
