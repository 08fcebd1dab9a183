// Weights of blocks of T as numbers of type U: 16 bytes of the result at a time, UNROLL times.

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
    const int WIDTH = 16 / sizeof(R), PIECES = 32 / WIDTH;
    const u64 tile = (u64)blockDim.x * UNROLL, all = p.units * PIECES;
    for (u64 row = blockIdx.y; row < p.rows; row += gridDim.y) {
        for (u64 first = blockIdx.x * tile; first < all; first += gridDim.x * tile) {
            u32 codes[UNROLL][WIDTH / 4];
            Scale scales[UNROLL];
            u64 to[UNROLL];
#pragma unroll
            for (int i = 0; i < UNROLL; ++i) {
                const u64 piece = first + threadIdx.x + i * blockDim.x, u = piece / PIECES, block = u / units_of<F>();
                const int unit = u % units_of<F>(), k = piece % PIECES * (WIDTH / 4);
                if (piece < all) {
                    const u8 *from = weights + row * p.weights_row + block * F::BYTES;
#pragma unroll
                    for (int w = 0; w < WIDTH / 4; ++w) codes[i][w] = codes_at<F>(from, unit, k + w);
                    scales[i] = F::scale(from, unit, k / 4, beside, row, (u32)u);
                }
                to[i] = block * F::BLOCK + F::first(unit) + k / 4 * F::GAP + k % 4 * 4;
            }
#pragma unroll
            for (int i = 0; i < UNROLL; ++i) {
                if (first + threadIdx.x + i * blockDim.x >= all) break;
                Piece<R> result;
#pragma unroll
                for (int w = 0; w < WIDTH / 4; ++w) {
                    f32 values[4];
                    to_floats<F>(codes[i][w], values);
#pragma unroll
                    for (int j = 0; j < 4; ++j) {
                        const f32 value = F::MINIMUM ? fmaf(scales[i].d, values[j], scales[i].m) : scales[i].d * values[j];
                        result.at[w * 4 + j] = Narrow<R>::from(value);
                    }
                }
                R *at = out + row * p.out_row + to[i] * p.out_step;
                if (p.wide) {
                    __stwb((uint4 *)at, result.raw);
                } else {
#pragma unroll
                    for (int j = 0; j < WIDTH; ++j) at[j * p.out_step] = result.at[j];
                }
            }
        }
    }
}

#define PASTE(NAME, WHAT) NAME##WHAT
#define SYMBOL(NAME, WHAT) PASTE(NAME, WHAT)
extern "C" __global__ void __launch_bounds__(256)
SYMBOL(NAME, _pieces)(U *out, const u8 *weights, const void *scales, const u8 *zeros, Groups groups, Rows p) {
    pieces<T, U>(out, weights, Beside{scales, zeros, groups}, p);
}
