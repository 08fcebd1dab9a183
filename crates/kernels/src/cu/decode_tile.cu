// Attention of few queries to many keys with matrix units: 16 rows by 16 keys at a time.
//
// Each wave goes through tiles of its own, which it copies into its own part of shared memory while it works on those before: no wave needs
// another before the end. DIM is a multiple of 16; keys and values lie in rows that are read 16 bytes at a time, and a tile of them in one block
// of the pool. FEW says that there are at most 8 rows: where a lane has two, the second is none.

#define TILE 16
#define EACH (16 / (int)sizeof(T))
// Rows of a length that swizzling fits.
#define COLUMNS (DIM <= 32 ? 32 : (DIM + 63) / 64 * 64)
#define STEPS (DIM / 16)
// Long queries stay in shared memory, behind the rings.
#define KEPT (DIM <= 128)
// Waves whose tiles lie next to each other ask for the next ones at the same time: memory gives a little more. Those of a pool lie
// anywhere.
#if defined(TILE_MMA) && !PAGED
#define IN_STEP 1
#else
#define IN_STEP 0
#endif

typedef Swizzled<T, COLUMNS> Place;

// 16 keys, or values, set out. Rows that are not there become zeros: what is multiplied with 0 must be a number.
__device__ inline void fetch(T *to, const T *from, const Steps &steps, i32 block, i32 within, i32 head, i32 left) {
    const int lane = lane_of_wave(), pieces = DIM / EACH;
    const T *first = from + (left > 0 ? steps.at(block, within, head) : 0);
    if (left >= TILE) {
        // Where lanes have the same piece of rows a power of 2 apart, the places they go to differ by constants.
        const int apart = WAVE / pieces;
        const bool even = WAVE % pieces == 0 && apart <= TILE;
        const int row = lane / pieces, column = lane % pieces * EACH, there = Place::offset(row, column);
        const T *at = first + (i64)row * steps.token + column;
#pragma unroll
        for (int u = 0; even && u < TILE; u += apart, at += (i64)apart * steps.token)
            copy_once16(to, (there ^ Place::offset(u, 0) % COLUMNS) + u * COLUMNS, at);
#pragma unroll
        for (int u = 0; !even && u < TILE * pieces; u += WAVE) {
            const int row = (u + lane) / pieces, column = (u + lane) % pieces * EACH;
            if (row < TILE) copy_once16(to, Place::offset(row, column), first + (i64)row * steps.token + column);
        }
        return;
    }
#pragma unroll 1
    for (int i = lane; i < TILE * pieces; i += WAVE) {
        const int row = i / pieces, column = i % pieces * EACH;
        const bool there = row < left;
        const T *at = there ? first + (i64)row * steps.token + column : from;
        copy_async16(Place{to}(row, column), at, there ? 16 : 0);
    }
}

// A lane's elements of C are in so many rows.
#define SLOTS (FEW ? 1 : TileC::ROWS)
__device__ inline int row_of(int slot) { return TileC::row(slot * TileC::RUN); }

// Each score becomes something, given its slot and its key, counted from the tile's first.
template <class F> __device__ inline void each(TileC &scores, F become) {
#pragma unroll
    for (int i = 0; i < TileC::N; ++i)
        if (TileC::slot(i) < SLOTS) scores.at[i] = become(scores.at[i], TileC::slot(i), TileC::column(i));
}

extern "C" __global__ void __launch_bounds__(WAVES *WAVE) SYMBOL(NAME, _parts)(OPERANDS, Decode d) {
    extern __shared__ uint4 shared[];
    take_turn();
    const Part part(d, lengths, TILE, TILE, WAVES);
    // What is needed again at the end need not take registers meanwhile.
    __shared__ Part last;
    if (threadIdx.x == 0) last = part;
    const int wave = threadIdx.x / WAVE;
    T *ring = (T *)shared + wave * 4 * TILE * COLUMNS;

    // Two tiles of keys and values each. The block of a tile is looked up one round before its copy sets out.
    i32 coming = part.begin + wave, next_within = 0, next_block = -1;
    if (coming < part.end) next_block = block_of(d, table, part.sequence, coming * TILE, next_within);
    int to = 0;
    // Gives whether its keys are nowhere.
    auto next = [&] {
        if (coming >= part.end) return true;
        const i32 left = next_block >= 0 ? part.len - coming * TILE : 0;
        T *keys = ring + 2 * to * TILE * COLUMNS;
        fetch(keys, k, d.k, next_block, next_within, part.kv_head, left);
        fetch(keys + TILE * COLUMNS, v, d.v, next_block, next_within, part.kv_head, left);
        commit_copies();
        to = 1 - to;
        coming += part.step;
        if (coming < part.end) next_block = block_of(d, table, part.sequence, coming * TILE, next_within);
        return left == 0;
    };
    bool unseen = next();

    // Behind the rings.
    const Place queries{(T *)shared + WAVES * 4 * TILE * COLUMNS};
    const int pieces = DIM / EACH;
#pragma unroll (FEW ? 1 : 4)
    for (int i = threadIdx.x; i < TILE * pieces; i += WAVES * WAVE) {
        const int row = i / pieces, column = i % pieces * EACH;
        union { uint4 raw; T each[EACH]; } piece;
        piece.raw = uint4{0, 0, 0, 0};
        if (row < part.rows) {
            const T *at = q + d.q.at(part.sequence, part.token(d, row), part.head(d, row));
            if (d.whole_queries) {
                piece.raw = *(const uint4 *)(at + column);
            } else {
#pragma unroll
                for (int e = 0; e < EACH; ++e) piece.each[e] = at[(i64)(column + e) * d.q.element];
            }
        }
        *(uint4 *)queries(row, column) = piece.raw;
    }
    __syncthreads();
    TileA<T> query[KEPT ? STEPS : 1];
#pragma unroll
    for (int s = 0; KEPT && s < STEPS; ++s) load_a(query[s], from(queries, 0, s * 16));

    f32 largest[SLOTS], sum[SLOTS], slope[SLOTS];
    i32 place[SLOTS], first[SLOTS], end[SLOTS];
#pragma unroll
    for (int s = 0; s < SLOTS; ++s) {
        const int row = row_of(s) < part.rows ? row_of(s) : part.rows - 1;
        const Sees sees(d, part.len, part.token(d, row));
        largest[s] = UNSEEN, sum[s] = 0, slope[s] = part.slope(d, slopes, row);
        place[s] = sees.place, first[s] = sees.first, end[s] = sees.end;
    }
    TileC out_tile[STEPS];
#pragma unroll
    for (int s = 0; s < STEPS; ++s) out_tile[s].clear();

    for (i32 round = part.begin; round < part.end; round += part.step) {
        const i32 tile = round + wave;
        const Place keys{ring + 2 * (1 - to) * TILE * COLUMNS}, values{keys.base + TILE * COLUMNS};
        // The keys and values of all lanes are there, and all are done with those before.
        wait_copies<0>();
        if (IN_STEP) __syncthreads();
        else __syncwarp();
        if (tile >= part.end) break;
        const bool hidden = unseen;
        unseen = next();
        TileC scores;
        scores.clear();
#pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            TileB<T> key;
            if (!KEPT) load_a(query[0], from(queries, 0, s * 16));
            load_b_t(key, from(keys, 0, s * 16));
            mma(scores, query[KEPT ? s : 0], key);
        }
        const i32 key0 = tile * TILE;
        bool whole = !hidden;
#pragma unroll
        for (int s = 0; s < SLOTS; ++s) whole = whole && key0 >= first[s] && key0 + TILE <= end[s];
        each(scores, [&](f32 x, int, int) { return times(x, d.scale); });
        if (d.cap != 0) each(scores, [&](f32 x, int, int) { return d.cap * tanhf(x); });
        if (slopes) each(scores, [&](f32 x, int s, int key) { return x - slope[s] * fabsf((f32)(place[s] - key0 - key)); });
        if (!whole)
            each(scores, [&](f32 x, int s, int key) { return hidden || key0 + key < first[s] || key0 + key >= end[s] ? UNSEEN : x; });
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
        // After the first tiles the largest score seldom changes.
        if (__any_sync(0xffffffffu, grown)) {
            f32 factor[SLOTS];
#pragma unroll
            for (int s = 0; s < SLOTS; ++s) {
                factor[s] = power(largest[s], most[s]);
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
        for (int s = 0; s < SLOTS; ++s) most[s] = most[s] == UNSEEN ? 0 : most[s];
        each(scores, [&](f32 x, int s, int) {
            const f32 weight = bare_exp2(x - most[s]);
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

    // The waves' results together: those of all are left in the ring, relative to the largest of all.
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
        f32 most = UNSEEN, total = 0;
#pragma unroll
        for (int w = 0; w < WAVES; ++w) most = fmaxf(most, wave_largest[w][row]);
#pragma unroll
        for (int w = 0; w < WAVES; ++w) total += wave_sum[w][row] * power(wave_largest[w][row], most);
        if (wave == 0) row_sum[row] = total, row_log[row] = total == 0 ? UNSEEN : most + log2f(total);
        const f32 factor = power(largest[s], most);
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
        leave(d, OPERANDS_GIVEN, last, row, column, row_sum[row] == 0 ? 0 : value / row_sum[row], row_log[row]);
    }
}
