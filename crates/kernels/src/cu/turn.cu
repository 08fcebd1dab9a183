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

// Bands of so many tiles across dimension b are copied one after the other: what is under way lies together on both sides.
#define BAND 64
__device__ inline u64 quotient(u64 x, u64 by) { return (x | by) >> 32 ? x / by : (u32)x / (u32)by; }

// Elements of one column that make a word. A tile of words is one of 64 in each column, in fours which a column's pack number turns round:
// no two threads of a warp meet in a bank, neither with words nor with fours of them.
#define EACH ((int)(sizeof(T) < 4 ? 4 / sizeof(T) : 1))
#define WORDS 64
__device__ inline int in_fours(int column, int word) { return column * WORDS + (word ^ (column / PACK % 8 * 4)); }
__device__ inline u32 word_of(const uint4 &pack, int k) { return k == 0 ? pack.x : k == 1 ? pack.y : k == 2 ? pack.z : pack.w; }

// A whole tile.
__device__ inline void whole_tile(u32 *tile, T *to, const T *from, const Turn &turn) {
    const int across = threadIdx.x % ACROSS, down = threadIdx.x / ACROSS;
    uint4 packs[WORDS / DOWN][TILE / PACK / ACROSS][EACH];
#pragma unroll
    for (int j = 0; j < WORDS / DOWN; ++j)
#pragma unroll
        for (int i = 0; i < TILE / PACK / ACROSS; ++i)
#pragma unroll
            for (int e = 0; e < EACH; ++e)
                packs[j][i][e] = *(const uint4 *)(from + ((down + j * DOWN) * EACH + e) * turn.in_b + (across + i * ACROSS) * PACK);
    __syncthreads();
#pragma unroll
    for (int j = 0; j < WORDS / DOWN; ++j)
#pragma unroll
        for (int i = 0; i < TILE / PACK / ACROSS; ++i)
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                const int word = down + j * DOWN, column = (across + i * ACROSS) * PACK + k * EACH;
                const u32 first = word_of(packs[j][i][0], k);
                if constexpr (EACH == 1) {
                    tile[in_fours(column, word)] = first;
                } else {
                    const u32 second = word_of(packs[j][i][EACH - 1], k);
                    tile[in_fours(column, word)] = __byte_perm(first, second, 0x5410);
                    tile[in_fours(column + 1, word)] = __byte_perm(first, second, 0x7632);
                }
            }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < TILE / DOWN; ++j)
#pragma unroll
        for (int i = 0; i < WORDS / 4 / ACROSS; ++i) {
            const int column = down + j * DOWN, four = across + i * ACROSS;
            store_raw((uint4 *)(to + column * turn.out_a + four * PACK), *(const uint4 *)(tile + in_fours(column, four * 4)));
        }
}

extern "C" __global__ void __launch_bounds__(THREADS) NAME(T *out, const T *in, Turn turn) {
    __shared__ __align__(16) T tile[TILE][TILE + (sizeof(T) < 4 ? 4 / sizeof(T) : 1)];
    const int across = threadIdx.x % ACROSS, down = threadIdx.x / ACROSS;
    for (u64 at = blockIdx.x; at < turn.tiles; at += gridDim.x) {
        u64 rest = quotient(at, turn.tiles_a * turn.tiles_b), within = at - rest * (turn.tiles_a * turn.tiles_b);
        const u64 band = quotient(within, BAND * turn.tiles_a) * BAND, left = turn.tiles_b - band, high = left < BAND ? left : BAND;
        within -= band * turn.tiles_a;
        const u64 tile_a = quotient(within, high), first_a = tile_a * TILE, first_b = (band + within - tile_a * high) * TILE;
        const T *from = in;
        T *to = out;
#pragma unroll 1
        for (int d = 0; d < turn.rank; ++d) {
            const u64 outer = quotient(rest, turn.shape[d]), place = rest - outer * turn.shape[d];
            rest = outer;
            from += place * turn.in[d];
            to += place * turn.out[d];
        }
        if constexpr (sizeof(T) == 2 || sizeof(T) == 4) {
            if (turn.in_packs && turn.out_packs && first_a + TILE <= turn.a && first_b + TILE <= turn.b) {
                whole_tile((u32 *)tile, to + first_a * turn.out_a + first_b, from + first_b * turn.in_b + first_a, turn);
                continue;
            }
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
