// Attention of few queries to many keys with plain sums: any layout, any size, f32 in full.
//
// LANES lanes have a key together, a wave several keys at a time; each lane has COUNT elements of each of ROWS rows. VECTORS says that
// keys and values can be read 16 bytes at a time.

#if defined(__AMDGCN__)
#define WAVE WARPWAVE_WAVE_SIZE
#else
#define WAVE 32
#endif
#define COUNT 8
#define EACH (VECTORS ? 16 / (int)sizeof(T) : 1)
#define LANES (DIM <= 32 ? 4 : DIM <= 64 ? 8 : DIM <= 128 ? 16 : 32)
#define AT_ONCE (WAVE / LANES)
// Keys that a lane has under way, beside those that it works on.
#if !defined(AHEAD)
#define AHEAD (sizeof(T) > 2 ? 2 : 4)
#endif
#define TILE (AT_ONCE * AHEAD)

// A lane's elements of one key.
struct Elements {
#if VECTORS
    union { uint4 raw; T each[EACH]; } packs[COUNT / EACH];
    __device__ T at(int i) const { return packs[i / EACH].each[i % EACH]; }
#else
    T each[COUNT];
    __device__ T at(int i) const { return each[i]; }
#endif
};

// The place of a lane's element: packs of all lanes lie side by side.
__device__ inline int column_of(int lane, int i) { return (i / EACH * LANES + lane) * EACH + i % EACH; }

__device__ inline void read(Elements &to, const T *from, i64 step, int lane, bool there) {
#if VECTORS
#pragma unroll
    for (int i = 0; i < COUNT; i += EACH) {
        const int column = column_of(lane, i);
        to.packs[i / EACH].raw = uint4{0, 0, 0, 0};
        if (there && (DIM % (LANES * COUNT) == 0 || column < DIM)) to.packs[i / EACH].raw = *(const uint4 *)(from + column);
    }
#else
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        to.each[i] = Narrow<T>::from(0);
        if (there && column_of(lane, i) < DIM) to.each[i] = from[column_of(lane, i) * step];
    }
#endif
}

// The keys and values of a tile.
struct Tile {
    Elements keys[AHEAD], values[AHEAD];
    i32 key[AHEAD];

    __device__ void fetch(const Decode &d, const Operands &of, const Part &part, i32 tile, int lane, int which) {
#pragma unroll
        for (int a = 0; a < AHEAD; ++a) {
            const i32 at = tile * TILE + a * AT_ONCE + which;
            i32 within = 0, block = tile < part.end && at < part.len ? block_of(d, of.table, part.sequence, at, within) : -1;
            key[a] = block < 0 ? -1 : at;
            read(keys[a], of.k + block * d.k[0] + within * d.k[1] + part.kv_head * d.k[2], d.k[3], lane, block >= 0);
            read(values[a], of.v + block * d.v[0] + within * d.v[1] + part.kv_head * d.v[2], d.v[3], lane, block >= 0);
        }
    }
};

extern "C" __global__ void __launch_bounds__(WAVES *WAVE) SYMBOL(NAME, _parts)(OPERANDS, Decode d) {
    const Operands of = OPERANDS_GIVEN;
    const Part part(d, lengths, ROWS, TILE);
    const int lane = threadIdx.x % LANES, which = threadIdx.x % WAVE / LANES, wave = threadIdx.x / WAVE;
    f32 query[ROWS][COUNT], result[ROWS][COUNT], largest[ROWS], sum[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const int row = r < part.rows ? r : 0;
        const T *from = q + part.sequence * d.q[0] + part.token(d, row) * d.q[1] + part.head(d, row) * d.q[2];
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const int column = column_of(lane, i);
            query[r][i] = column < DIM ? widen(from[column * d.q[3]]) : 0;
            result[r][i] = 0;
        }
        largest[r] = UNSEEN, sum[r] = 0;
    }
    Tile next;
    next.fetch(d, of, part, part.begin + wave, lane, which);
    for (i32 tile = part.begin + wave; tile < part.end; tile += WAVES) {
        const Tile now = next;
        next.fetch(d, of, part, tile + WAVES, lane, which);
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const int row = r < part.rows ? r : 0;
            const Sees sees(d, part.len, part.token(d, row));
            const f32 slope = part.slope(d, slopes, row);
            f32 x[AHEAD], most = largest[r];
#pragma unroll
            for (int a = 0; a < AHEAD; ++a) {
                x[a] = 0;
#pragma unroll
                for (int i = 0; i < COUNT; ++i) x[a] += query[r][i] * widen(now.keys[a].at(i));
#pragma unroll
                for (int apart = LANES / 2; apart > 0; apart /= 2) x[a] += __shfl_xor_sync(0xffffffffu, x[a], apart);
                x[a] = now.key[a] >= 0 && sees.sees(now.key[a]) ? score(d, x[a], slope, sees.place - now.key[a]) : UNSEEN;
                most = fmaxf(most, x[a]);
            }
            const f32 factor = power(largest[r], most);
            largest[r] = most;
            sum[r] *= factor;
#pragma unroll
            for (int i = 0; i < COUNT; ++i) result[r][i] *= factor;
#pragma unroll
            for (int a = 0; a < AHEAD; ++a) {
                const f32 weight = power(x[a], most);
                sum[r] += weight;
#pragma unroll
                for (int i = 0; i < COUNT; ++i) result[r][i] += weight * widen(now.values[a].at(i));
            }
        }
    }
    // The lanes that had other keys, then the other waves.
    __shared__ f32 results[WAVES][ROWS][LANES * COUNT], wave_largest[WAVES][ROWS], wave_sum[WAVES][ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        f32 most = largest[r];
#pragma unroll
        for (int apart = LANES; apart < WAVE; apart *= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, apart));
        const f32 factor = power(largest[r], most);
        sum[r] *= factor;
#pragma unroll
        for (int apart = LANES; apart < WAVE; apart *= 2) sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], apart);
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            f32 value = result[r][i] * factor;
#pragma unroll
            for (int apart = LANES; apart < WAVE; apart *= 2) value += __shfl_xor_sync(0xffffffffu, value, apart);
            if (which == 0) results[wave][r][column_of(lane, i)] = value;
        }
        if (threadIdx.x % WAVE == 0) wave_largest[wave][r] = most, wave_sum[wave][r] = sum[r];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < part.rows * DIM; i += blockDim.x) {
        const int row = i / DIM, column = i % DIM;
        f32 most = UNSEEN, total = 0, value = 0;
        for (int w = 0; w < WAVES; ++w) most = fmaxf(most, wave_largest[w][row]);
        for (int w = 0; w < WAVES; ++w) {
            const f32 factor = power(wave_largest[w][row], most);
            total += wave_sum[w][row] * factor;
            value += results[w][row][column] * factor;
        }
        leave(d, of, part, row, column, total > 0 ? value / total : 0, total > 0 ? most + log2f(total) : UNSEEN);
    }
}
