// A copy that turns two dimensions round: what lies in a row on one side lies in a column on the other. Tiles go through shared memory,
// so that both sides are read and written in rows.

#define TILE (sizeof(T) <= 2 ? 128 : sizeof(T) == 8 ? 32 : 64)
#define PACK ((int)(16 / sizeof(T)))
// Threads beside each other along a row: with a word of padding no two of a warp meet in a bank.
#define ACROSS 8
#define DOWN (THREADS / ACROSS)

// Dimension a lies in rows in the input, dimension b in the result; the others are walked from outside.
struct Turn {
    u64 a, b, in_b, out_a, tiles_a, tiles_b, tiles;
    u32 rank, in_packs, out_packs, padding;
    u64 shape[4], in[4], out[4];
};

extern "C" __global__ void __launch_bounds__(THREADS) NAME(T *out, const T *in, Turn turn) {
    __shared__ T tile[TILE][TILE + (sizeof(T) < 4 ? 4 / sizeof(T) : 1)];
    const int across = threadIdx.x % ACROSS, down = threadIdx.x / ACROSS;
    for (u64 at = blockIdx.x; at < turn.tiles; at += gridDim.x) {
        u64 rest = at / turn.tiles_a;
        const u64 first_a = at % turn.tiles_a * TILE, first_b = rest % turn.tiles_b * TILE;
        rest /= turn.tiles_b;
        const T *from = in;
        T *to = out;
#pragma unroll 1
        for (int d = 0; d < turn.rank; ++d) {
            const u64 place = rest % turn.shape[d];
            rest /= turn.shape[d];
            from += place * turn.in[d];
            to += place * turn.out[d];
        }
        __syncthreads();
#pragma unroll
        for (int j = 0; j < TILE / DOWN; ++j) {
            const u64 b = first_b + down + j * DOWN;
#pragma unroll
            for (int i = 0; i < TILE / PACK / ACROSS; ++i) {
                const int column = (across + i * ACROSS) * PACK;
                const u64 a = first_a + column;
                if (b >= turn.b || a >= turn.a) continue;
                const T *source = from + b * turn.in_b + a;
                if (turn.in_packs && a + PACK <= turn.a) {
                    const Pack<T, PACK> pack = get<T, PACK>(source);
#pragma unroll
                    for (int k = 0; k < PACK; ++k) tile[column + k][down + j * DOWN] = pack.at[k];
                } else {
                    for (int k = 0; k < PACK && a + k < turn.a; ++k) tile[column + k][down + j * DOWN] = source[k];
                }
            }
        }
        __syncthreads();
#pragma unroll
        for (int j = 0; j < TILE / DOWN; ++j) {
            const u64 a = first_a + down + j * DOWN;
#pragma unroll
            for (int i = 0; i < TILE / PACK / ACROSS; ++i) {
                const int column = (across + i * ACROSS) * PACK;
                const u64 b = first_b + column;
                if (a >= turn.a || b >= turn.b) continue;
                T *target = to + a * turn.out_a + b;
                const T *row = tile[down + j * DOWN] + column;
                if (turn.out_packs && b + PACK <= turn.b) {
                    Pack<T, PACK> pack;
#pragma unroll
                    for (int k = 0; k < PACK; ++k) pack.at[k] = row[k];
                    put<T, PACK>(target, pack);
                } else {
                    for (int k = 0; k < PACK && b + k < turn.b; ++k) target[k] = row[k];
                }
            }
        }
    }
}
