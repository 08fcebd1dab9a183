// Flash attention on matrix units: each wave has 16 * MT queries and iterates over key blocks with an online softmax. Scores are never
// stored.
//
// SPLIT: that many waves have the same queries and compute the same scores, but each a part of the result's columns, whose accumulators
// would otherwise exceed the registers.
//
// The values of a block load while its scores are computed, and the keys of the next block while the values are accumulated.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME flash_f16
#define T f16
#define D 64
#define BN 32
#define MT 1
#define WAVES 4
#endif
#ifndef SPLIT
#define SPLIT 1
#endif

#include "attention/attention.cuh"
#include "attention/kv_tile.cuh"
#include "common/tile.cuh"

#define THREADS (WAVES * WAVE)
#define BM (WAVES / SPLIT * MT * 16)
// Result columns of a wave.
#define OUT (D / SPLIT)

// Applies f(score, key range of its query, key relative to the lane's first) to every score.
template <int N, class F> __device__ inline void each(TileC (&s)[N], const KeyRange (&range)[TileC::ROWS], F f) {
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
        for (int i = 0; i < TileC::N; ++i)
            s[n].at[i] = f(s[n].at[i], range[TileC::slot(i)], n * 16 + TileC::column(i) - TileC::column(0));
}

extern "C" __global__ void __launch_bounds__(THREADS)
    NAME(const T *q, const Cached *k, const Cached *v, TABLE_PARAMETERS, const __grid_constant__ Attention a, T *out,
         f32 *lse CACHE_SCALES) {
    extern __shared__ __align__(1024) u8 shared[];
    const Tables tables = TABLES;
    const Work<BM, BN> work(a, tables, blockIdx.x);
    if (work.idle()) return;

    const int panels = (D + 63) / 64 * 64;
    T *const q_tile = (T *)shared, *const k_tile = q_tile + BM * panels, *const v_tile = k_tile + BN * panels;
    const Rows<Cached> keys(k, a.k, a, tables, work), values(v, a.v, a, tables, work);
    const Rows<T> queries(q, a.q, work.sequence, work.head, work.q_start);
    load_tile<D, BM, THREADS, true>(q_tile, queries, work.first, work.q_len, a, threadIdx.x);
#if defined(CODES)
    const Rows<f16> key_scales(k_scales, scales.k, a, tables, work), value_scales(v_scales, scales.v, a, tables, work);
    auto fetch_block = [&](T *to, const Rows<Cached> &rows, i32 block) {
        load_codes<D, BN, THREADS>(to, rows, &rows == &keys ? key_scales : value_scales, block * BN, work.kv_len, a, threadIdx.x);
        commit_copies();
    };
#else
    auto fetch_block = [&](T *to, const Rows<Cached> &rows, i32 block) {
        load_tile<D, BN, THREADS, true>(to, rows, block * BN, work.kv_len, a, threadIdx.x);
        commit_copies();
    };
#endif
    if (work.begin < work.end) fetch_block(k_tile, keys, work.begin);

    const Scores scores(a, tables, work.sequence, work.head);
    const int wave = threadIdx.x / WAVE, row0 = wave / SPLIT * MT * 16, column0 = wave % SPLIT * OUT, ROWS = TileC::ROWS;
    TileC o[MT][OUT / 16];
    f32 most[MT][ROWS], sum[MT][ROWS];
#pragma unroll
    for (int t = 0; t < MT; ++t) {
#pragma unroll
        for (int n = 0; n < OUT / 16; ++n) o[t][n].clear();
#pragma unroll
        for (int r = 0; r < ROWS; ++r) most[t][r] = -infinity(), sum[t][r] = 0;
    }

#pragma unroll 1
    for (i32 block = work.begin; block < work.end; ++block) {
        wait_copies<0>();
        __syncthreads();
        fetch_block(v_tile, values, block);

        TileC s[MT][BN / 16];
#pragma unroll
        for (int t = 0; t < MT; ++t)
#pragma unroll
            for (int n = 0; n < BN / 16; ++n) s[t][n].clear();
// All loads of large heads ahead of their products would spill.
#pragma unroll (D > 256 ? 2 : D / 16)
        for (int d = 0; d < D / 16; ++d) {
            TileA<T> x[MT];
#pragma unroll
            for (int t = 0; t < MT; ++t) load_a(x[t], SwizzledPanels<T, BM>{q_tile, row0 + t * 16, d * 16});
#pragma unroll
            for (int n = 0; n < BN / 16; ++n) {
                TileB<T> y;
                load_b_t(y, SwizzledPanels<T, BN>{k_tile, n * 16, d * 16});
#pragma unroll
                for (int t = 0; t < MT; ++t) mma(s[t][n], x[t], y);
            }
        }

        wait_copies<0>();
        __syncthreads();
        if (block + 1 < work.end) fetch_block(k_tile, keys, block + 1);

        const bool masked = work.masked(block), has_missing = any_missing(a, tables, work, block);
#pragma unroll
        for (int t = 0; t < MT; ++t) {
            const i32 first = work.first + row0 + t * 16;
            KeyRange range[ROWS];
#pragma unroll
            for (int r = 0; r < ROWS; ++r) range[r] = work.range(first + TileC::row(r * TileC::RUN), block * BN + TileC::column(0));
            if (scores.cap > 0) each(s[t], range, [&](f32 x, const KeyRange &, int) { return scores.soft_capped(x); });
            else if (scores.transformed) each(s[t], range, [&](f32 x, const KeyRange &, int) { return scores.scaled(x); });
            if (scores.slope != 0)
                each(s[t], range, [&](f32 x, const KeyRange &row, int key) { return scores.with_alibi(x, (f32)row.own - (f32)key); });
            if (masked) each(s[t], range, [&](f32 x, const KeyRange &row, int key) { return row.sees(key) ? x : -infinity(); });
            if (has_missing) {
                const MissingKeys<BN> missing_keys(a, tables, work.sequence, block * BN + TileC::column(0));
                each(s[t], range, [&](f32 x, const KeyRange &, int key) { return missing_keys.at(key) ? -infinity() : x; });
            }
            f32 high[ROWS];
            bool rescale = false;
#pragma unroll
            for (int r = 0; r < ROWS; ++r) high[r] = -infinity();
#pragma unroll
            for (int n = 0; n < BN / 16; ++n)
#pragma unroll
                for (int i = 0; i < TileC::N; ++i) high[TileC::slot(i)] = fmaxf(high[TileC::slot(i)], s[t][n].at[i]);
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                high[r] = across_row(high[r], [](f32 x, f32 y) { return fmaxf(x, y); }) * scores.factor;
                rescale |= high[r] > most[t][r] + RESCALE_THRESHOLD;
            }
            if (__any_sync(0xffffffffu, rescale)) {
                f32 less[ROWS];
#pragma unroll
                for (int r = 0; r < ROWS; ++r) {
                    const f32 next = fmaxf(most[t][r], high[r]);
                    less[r] = next == -infinity() ? 1 : exp2_approx(most[t][r] - next);
                    most[t][r] = next;
                    sum[t][r] *= less[r];
                }
#pragma unroll
                for (int n = 0; n < OUT / 16; ++n)
#pragma unroll
                    for (int i = 0; i < TileC::N; ++i) o[t][n].at[i] *= less[TileC::slot(i)];
            }
            f32 base[ROWS];
#pragma unroll
            for (int r = 0; r < ROWS; ++r) base[r] = most[t][r] == -infinity() ? 0 : most[t][r];
#pragma unroll
            for (int n = 0; n < BN / 16; ++n)
#pragma unroll
                for (int i = 0; i < TileC::N; ++i) {
                    const int r = TileC::slot(i);
                    s[t][n].at[i] = exp2_approx(scores.times_factor(s[t][n].at[i]) - base[r]);
                    sum[t][r] += s[t][n].at[i];
                }
        }

#pragma unroll
        for (int c = 0; c < BN / 16; ++c) {
            TileA<T> x[MT];
#pragma unroll
            for (int t = 0; t < MT; ++t) x[t] = to_a<T>(s[t][c]);
#pragma unroll
            for (int n = 0; n < OUT / 16; ++n) {
                TileB<T> y;
                load_b(y, SwizzledPanels<T, BN>{v_tile, c * 16, column0 + n * 16});
#pragma unroll
                for (int t = 0; t < MT; ++t) mma(o[t][n], x[t], y);
            }
        }
    }
    wait_copies<0>();

    const Results to = results(a, sinks);
    T *const out_first = out + work.sequence * to.out.sequence + work.head * to.out.head + work.q_start * to.out.row;
#pragma unroll
    for (int t = 0; t < MT; ++t) {
        f32 share[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const f32 all = across_row(sum[t][r], [](f32 x, f32 y) { return x + y; });
            const i32 query = work.first + row0 + t * 16 + TileC::row(r * TileC::RUN);
            const RowTotal total = row_total(most[t][r], all, to.sinks, work.head);
            share[r] = total.share;
            if (lse && query < work.q_len && TileC::column(0) == 0 && column0 == 0)
                lse[work.sequence * to.lse.sequence + work.head * to.lse.head + (work.q_start + query) * to.lse.row] =
                    log_sum(total.most, total.sum);
        }
#pragma unroll
        for (int n = 0; n < OUT / 16; ++n)
#pragma unroll
            for (int i = 0; i < TileC::N; i += TileC::RUN) {
                const i32 query = work.first + row0 + t * 16 + TileC::row(i), column = column0 + n * 16 + TileC::column(i);
                if (query >= work.q_len || column >= a.dim) continue;
                store_run<TileC::RUN>(out_first + query * to.out.row + column, &o[t][n].at[i], share[TileC::slot(i)], a.aligned);
            }
    }
}
