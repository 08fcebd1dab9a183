// Split-KV decode attention on matrix units: tiles of 16 rows by 16 keys.
//
// Each wave iterates over its own tiles, which it copies into its own part of shared memory while it computes on the previous ones: waves
// synchronize only at the end. DIM is a multiple of 16; keys and values are read as 16-byte vectors, and a tile lies within one cache
// block. HALF_TILE: there are at most 8 rows, so a lane has one row instead of two.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME decode_f16
#define T f16
#define U f16
#define DIM 64
#define PAGED 0
#define WAVES 4
#define HALF_TILE 0
#endif

#include "attention/decode.cuh"
#include "common/tile.cuh"

#define TILE 16
#define EACH (16 / (int)sizeof(T))
// Row lengths that the swizzle supports.
#define COLUMNS (DIM <= 32 ? 32 : (DIM + 63) / 64 * 64)
#define STEPS (DIM / 16)
// Longer queries stay in shared memory, after the rings.
#define QUERIES_IN_REGISTERS (DIM <= 128)
// Waves with adjacent tiles request the next ones together, which memory serves a little faster. Pages are scattered anyway.
#if defined(TILE_MMA) && !PAGED
#define LOCKSTEP 1
#else
#define LOCKSTEP 0
#endif

typedef Swizzled<T, COLUMNS> SmemTile;

#if defined(CODES)
// Loads 16 keys or values as T. Missing rows become zeros: a masked weight of 0 must not meet NaN.
__device__ inline void fetch(T *to, const Code *from, const f16 *scales, const HeadStrides &strides, const HeadStrides &scale_strides,
                             i32 block, i32 within, i32 head, i32 left) {
    const int chunks = DIM / EACH;
#pragma unroll 4
    for (int i = lane_id(); i < TILE * chunks; i += WAVE) {
        const int row = i / chunks, column = i % chunks * EACH;
        union { uint4 raw; T each[EACH]; } chunk;
        chunk.raw = uint4{0, 0, 0, 0};
        if (row < left) {
            const f16 scale = scales[scale_strides.at(block, within + row, head) + group_of(column)];
            expand(chunk.each, get<Code, EACH>(from + strides.at(block, within + row, head) + column), widen(scale));
        }
        *(uint4 *)SmemTile{to}(row, column) = chunk.raw;
    }
}
#define FETCH(to, from, left) fetch(to, from, from##_scales, d.from, scales.from, next_block, next_within, part.kv_head, left)
#else
// Starts copying 16 keys or values. Missing rows become zeros: a masked weight of 0 must not meet NaN.
__device__ inline void fetch(T *to, const T *from, const HeadStrides &strides, i32 block, i32 within, i32 head, i32 left) {
    const int lane = lane_id(), chunks = DIM / EACH;
    const T *first = from + (left > 0 ? strides.at(block, within, head) : 0);
    if (left >= TILE) {
        // Where lanes have the same chunk of rows a power of 2 apart, their swizzled offsets differ by constants.
        const int apart = WAVE / chunks;
        const bool even = WAVE % chunks == 0 && apart <= TILE;
        const int row = lane / chunks, column = lane % chunks * EACH, there = SmemTile::offset(row, column);
        const T *at = first + (i64)row * strides.token + column;
#pragma unroll
        for (int u = 0; even && u < TILE; u += apart, at += (i64)apart * strides.token)
            copy_once16(to, (there ^ SmemTile::offset(u, 0) % COLUMNS) + u * COLUMNS, at);
#pragma unroll
        for (int u = 0; !even && u < TILE * chunks; u += WAVE) {
            const int row = (u + lane) / chunks, column = (u + lane) % chunks * EACH;
            if (row < TILE) copy_once16(to, SmemTile::offset(row, column), first + (i64)row * strides.token + column);
        }
        return;
    }
#pragma unroll 1
    for (int i = lane; i < TILE * chunks; i += WAVE) {
        const int row = i / chunks, column = i % chunks * EACH;
        const bool there = row < left;
        const T *at = there ? first + (i64)row * strides.token + column : from;
        copy_async16(SmemTile{to}(row, column), at, there ? 16 : 0);
    }
}
#define FETCH(to, from, left) fetch(to, from, d.from, next_block, next_within, part.kv_head, left)
#endif

// Rows of C per lane.
#define SLOTS (HALF_TILE ? 1 : TileC::ROWS)
__device__ inline int row_of(int slot) { return TileC::row(slot * TileC::RUN); }

// Applies f(score, slot, key relative to the tile) to every score.
template <class F> __device__ inline void each(TileC &scores, F f) {
#pragma unroll
    for (int i = 0; i < TileC::N; ++i)
        if (TileC::slot(i) < SLOTS) scores.at[i] = f(scores.at[i], TileC::slot(i), TileC::column(i));
}

extern "C" __global__ void __launch_bounds__(WAVES *WAVE) KERNEL_NAME(NAME, _split)(DECODE_PARAMETERS, Decode d DECODE_SCALES) {
    extern __shared__ uint4 shared[];
    pdl_sync();
    const KvSplit part(d, lengths, TILE, TILE, WAVES);
    // In shared memory: needed again only at the end.
    __shared__ KvSplit last;
    if (threadIdx.x == 0) last = part;
    const int wave = threadIdx.x / WAVE;
    T *ring = (T *)shared + wave * 4 * TILE * COLUMNS;

    // Double-buffered tiles of keys and values. The cache block of a tile is looked up one round before its copy starts.
    i32 coming = part.begin + wave, next_within = 0, next_block = -1;
    if (coming < part.end) next_block = block_of(d, table, part.sequence, coming * TILE, next_within);
    int to = 0;
    // Returns whether the keys are missing.
    auto next = [&] {
        if (coming >= part.end) return true;
        const i32 left = next_block >= 0 ? part.len - coming * TILE : 0;
        T *keys = ring + 2 * to * TILE * COLUMNS;
        FETCH(keys, k, left);
        FETCH(keys + TILE * COLUMNS, v, left);
        commit_copies();
        to = 1 - to;
        coming += part.step;
        if (coming < part.end) next_block = block_of(d, table, part.sequence, coming * TILE, next_within);
        return left == 0;
    };
    bool masked = next();

    // After the rings.
    const SmemTile queries{(T *)shared + WAVES * 4 * TILE * COLUMNS};
    const int chunks = DIM / EACH;
#pragma unroll (HALF_TILE ? 1 : 4)
    for (int i = threadIdx.x; i < TILE * chunks; i += WAVES * WAVE) {
        const int row = i / chunks, column = i % chunks * EACH;
        union { uint4 raw; T each[EACH]; } chunk;
        chunk.raw = uint4{0, 0, 0, 0};
        if (row < part.rows) {
            const T *at = q + d.q.at(part.sequence, part.token(d, row), part.head(d, row));
            if (d.vector_queries) {
                chunk.raw = *(const uint4 *)(at + column);
            } else {
#pragma unroll
                for (int e = 0; e < EACH; ++e) chunk.each[e] = at[(i64)(column + e) * d.q.element];
            }
        }
        *(uint4 *)queries(row, column) = chunk.raw;
    }
    __syncthreads();
    TileA<T> query[QUERIES_IN_REGISTERS ? STEPS : 1];
#pragma unroll
    for (int s = 0; QUERIES_IN_REGISTERS && s < STEPS; ++s) load_a(query[s], from(queries, 0, s * 16));

    f32 largest[SLOTS], sum[SLOTS], slope[SLOTS];
    i32 position[SLOTS], first[SLOTS], end[SLOTS];
#pragma unroll
    for (int s = 0; s < SLOTS; ++s) {
        const int row = row_of(s) < part.rows ? row_of(s) : part.rows - 1;
        const KeyRange range(d, part.len, part.token(d, row));
        largest[s] = MASKED, sum[s] = 0, slope[s] = part.slope(d, slopes, row);
        position[s] = range.position, first[s] = range.first, end[s] = range.end;
    }
#if TREE
    const i32 draft = first_draft(d, part.len);
    u64 drafts[SLOTS];
#pragma unroll
    for (int s = 0; s < SLOTS; ++s) drafts[s] = part.drafts(d, tree, row_of(s) < part.rows ? row_of(s) : part.rows - 1);
    // Drafts beyond the last do not exist.
    const u64 all_drafts = ~0ull >> (MAX_DRAFTS - (part.len - draft));
#endif
    auto sees = [&](int s, i32 key) {
#if TREE
        if (key >= draft) return sees_draft(drafts[s] & all_drafts, key - draft);
#endif
        return key >= first[s] && key < end[s];
    };
    TileC out_tile[STEPS];
#pragma unroll
    for (int s = 0; s < STEPS; ++s) out_tile[s].clear();

    for (i32 round = part.begin; round < part.end; round += part.step) {
        const i32 tile = round + wave;
        const SmemTile keys{ring + 2 * (1 - to) * TILE * COLUMNS}, values{keys.base + TILE * COLUMNS};
        // The tile has arrived for all lanes, and all are done with the previous one.
        wait_copies<0>();
        if (LOCKSTEP) __syncthreads();
        else __syncwarp();
        if (tile >= part.end) break;
        const bool hidden = masked;
        masked = next();
        TileC scores;
        scores.clear();
#pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            TileB<T> key;
            if (!QUERIES_IN_REGISTERS) load_a(query[0], from(queries, 0, s * 16));
            load_b_t(key, from(keys, 0, s * 16));
            mma(scores, query[QUERIES_IN_REGISTERS ? s : 0], key);
        }
        const i32 key0 = tile * TILE;
        bool whole = !hidden;
#if TREE
        whole = whole && key0 + TILE <= draft;
#endif
#pragma unroll
        for (int s = 0; s < SLOTS; ++s) whole = whole && key0 >= first[s] && key0 + TILE <= end[s];
        each(scores, [&](f32 x, int, int) { return multiply_rn(x, d.scale); });
        if (d.cap != 0) each(scores, [&](f32 x, int, int) { return d.cap * tanhf(x); });
        if (slopes) each(scores, [&](f32 x, int s, int key) { return x - slope[s] * fabsf((f32)(position[s] - key0 - key)); });
        if (!whole)
            each(scores, [&](f32 x, int s, int key) { return hidden || !sees(s, key0 + key) ? MASKED : x; });
        f32 most[SLOTS];
#pragma unroll
        for (int s = 0; s < SLOTS; ++s) most[s] = largest[s];
        each(scores, [&](f32 x, int s, int) { return most[s] = fmaxf(most[s], x), x; });
        bool grown = false;
#pragma unroll
        for (int s = 0; s < SLOTS; ++s) {
            most[s] = across_row(most[s], [](f32 a, f32 b) { return fmaxf(a, b); });
            grown = grown || most[s] != largest[s];
        }
        // After the first tiles the maximum rarely changes.
        if (__any_sync(0xffffffffu, grown)) {
            f32 factor[SLOTS];
#pragma unroll
            for (int s = 0; s < SLOTS; ++s) {
                factor[s] = exp2_relative(largest[s], most[s]);
                sum[s] *= factor[s];
                largest[s] = most[s];
            }
#pragma unroll
            for (int s = 0; s < STEPS; ++s)
#pragma unroll
                for (int i = 0; i < TileC::N; ++i)
                    if (TileC::slot(i) < SLOTS) out_tile[s].at[i] *= factor[TileC::slot(i)];
        }
#pragma unroll
        for (int s = 0; s < SLOTS; ++s) most[s] = most[s] == MASKED ? 0 : most[s];
        each(scores, [&](f32 x, int s, int) {
            const f32 weight = exp2_approx(x - most[s]);
            sum[s] += weight;
            return weight;
        });
#pragma unroll
        for (int i = 0; i < TileC::N; ++i)
            if (TileC::slot(i) >= SLOTS) scores.at[i] = 0;
        const TileA<T> weights = to_a<T>(scores);
#pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            TileB<T> value;
            load_b(value, from(values, 0, s * 16));
            mma(out_tile[s], weights, value);
        }
    }
    wait_copies<0>();

    // Combine the waves: results go to the rings, relative to the overall maximum.
    __shared__ f32 wave_largest[WAVES][TILE], wave_sum[WAVES][TILE];
#pragma unroll
    for (int s = 0; s < SLOTS; ++s) {
        wave_largest[wave][row_of(s)] = largest[s];
        wave_sum[wave][row_of(s)] = across_row(sum[s], [](f32 a, f32 b) { return a + b; });
    }
    __syncthreads();
    f32 *results = (f32 *)shared;
    __shared__ f32 row_sum[TILE], row_log[TILE];
#pragma unroll
    for (int s = 0; s < SLOTS; ++s) {
        const int row = row_of(s);
        const f32 sink = d.splits == 1 ? sink_of(d, sinks, last.head(d, row < last.rows ? row : 0)) : MASKED;
        f32 most = sink;
#pragma unroll
        for (int w = 0; w < WAVES; ++w) most = fmaxf(most, wave_largest[w][row]);
        f32 total = exp2_relative(sink, most);
#pragma unroll
        for (int w = 0; w < WAVES; ++w) total += wave_sum[w][row] * exp2_relative(wave_largest[w][row], most);
        if (wave == 0) row_sum[row] = total, row_log[row] = total == 0 ? MASKED : most + log2f(total);
        const f32 factor = exp2_relative(largest[s], most);
        if (row < last.rows)
#pragma unroll
            for (int i = 0; i < TileC::N; ++i)
#pragma unroll
                for (int t = 0; t < STEPS; ++t)
                    if (TileC::slot(i) == s) results[(wave * TILE + row) * DIM + t * 16 + TileC::column(i)] = out_tile[t].at[i] * factor;
    }
    __syncthreads();
#pragma unroll 1
    for (int i = threadIdx.x; i < last.rows * DIM; i += blockDim.x) {
        const int row = i / DIM, column = i % DIM;
        f32 value = 0;
#pragma unroll
        for (int w = 0; w < WAVES; ++w) value += results[(w * TILE + row) * DIM + column];
        store_result(d, DECODE_OPERANDS, last, row, column, row_sum[row] == 0 ? 0 : value / row_sum[row], row_log[row]);
    }
}
