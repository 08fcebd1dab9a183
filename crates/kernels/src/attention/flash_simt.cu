// Flash attention with f32 FMAs: for f32, and for GPUs without matrix units.
//
// 16 × 16 threads: a thread has BM / 16 queries, and of them every 16th key and every 16th group of four result columns. Keys and values of
// large heads come to shared memory in two parts.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME flash_f32
#define T f32
#define D 64
#define BM 64
#define BN 32
#endif

#include "attention/attention.cuh"

#define THREADS 256
#define RM (BM / 16)
#define RN (BN / 16)
// Row pitch in shared memory, padded against bank conflicts.
#define WIDE (D + 4)
// Columns of keys and values at a time, and their pitch.
#define CHUNK (D <= 256 ? D : (D / 2 + 63) / 64 * 64)
#define PARTS ((D + CHUNK - 1) / CHUNK)
#define KV_WIDE (CHUNK + 4)
#define P_WIDE (BN + 4)
// Groups of four columns per thread.
#define COLUMNS ((D / 4 + 15) / 16)
#define PART_COLUMNS ((CHUNK / 4 + 15) / 16)

struct alignas(16) Four { f32 at[4]; };
__device__ inline Four four(const f32 *from) { return *(const Four *)from; }

// Loads in flight per thread; AMD has too few scalar registers for more.
#if defined(__AMDGCN__)
#define AHEAD 4
#else
#define AHEAD 8
#endif

// Loads ROWS rows from row `first` as f32, WIDTH columns from column `from`; rows from `end` on and columns beyond head_dim become zeros.
template <int ROWS, int WIDTH>
__device__ inline void widen_rows(f32 *to, const Rows<T> &rows, i32 first, i32 end, const Attention &a, int from = 0) {
    struct alignas(4 * sizeof(T)) Run { T at[4]; };
    const T zero = Narrow<T>::from(0);
    const bool whole = a.aligned && !rows.table;
#pragma unroll 1
    for (int start = threadIdx.x; start < ROWS * (WIDTH / 4); start += AHEAD * THREADS) {
        Run runs[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; ++i) {
            const int chunk = start + i * THREADS, row = chunk / (WIDTH / 4), column = from + chunk % (WIDTH / 4) * 4;
            const bool there = row < ROWS && first + row < end && column < a.dim;
            runs[i] = Run{{zero, zero, zero, zero}};
            if (whole) {
                if (there) runs[i] = *(const Run *)(rows.base + (first + row) * rows.step + column);
            } else if (const T *at = there ? rows.at(first + row) : nullptr) {
#pragma unroll
                for (int e = 0; e < 4; ++e) runs[i].at[e] = at[column + e];
            }
        }
#pragma unroll
        for (int i = 0; i < AHEAD; ++i) {
            const int chunk = start + i * THREADS, row = chunk / (WIDTH / 4), column = chunk % (WIDTH / 4) * 4;
            if (row >= ROWS) break;
            Four wide;
#pragma unroll
            for (int e = 0; e < 4; ++e) wide.at[e] = widen(runs[i].at[e]);
            *(Four *)(to + row * (WIDTH + 4) + column) = wide;
        }
    }
}

#if defined(CODES)
// As `widen_rows`, from a quantized cache.
template <int ROWS, int WIDTH>
__device__ inline void widen_codes(f32 *to, const Rows<Code> &rows, const Rows<f16> &scales, i32 first, i32 end, const Attention &a,
                                   int from) {
#pragma unroll 2
    for (int i = threadIdx.x; i < ROWS * (WIDTH / 8); i += THREADS) {
        const int row = i / (WIDTH / 8), place = i % (WIDTH / 8) * 8, column = from + place;
        const Code *const codes_at = first + row < end && column < a.dim ? rows.at(first + row) : nullptr;
        Four wide[2] = {};
        if (codes_at) {
            const Pack<Code, 8> codes = get_codes(codes_at + column, a.aligned);
            const f32 scale = widen(scales.at(first + row)[group_of(column)]);
#pragma unroll
            for (int e = 0; e < 8; ++e) wide[e / 4].at[e % 4] = widen(codes.at[e]) * scale;
        }
        *(Four *)(to + row * (WIDTH + 4) + place) = wide[0];
        *(Four *)(to + row * (WIDTH + 4) + place + 4) = wide[1];
    }
}
#endif

template <class F> __device__ inline f32 across_sixteen(f32 value, F f) {
#pragma unroll
    for (int apart = 1; apart < 16; apart *= 2) value = f(value, __shfl_xor_sync(0xffffffffu, value, apart));
    return value;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    NAME(const T *q, const Cached *k, const Cached *v, TABLE_PARAMETERS, const __grid_constant__ Attention a, T *out,
         f32 *lse CACHE_SCALES) {
    extern __shared__ __align__(16) f32 shared[];
    const Tables tables = TABLES;
    const Work<BM, BN> work(a, tables, blockIdx.x);
    if (work.idle()) return;

    f32 *const q_tile = shared, *const tile = q_tile + BM * WIDE, *const p_tile = tile + BN * KV_WIDE;
    const int row0 = threadIdx.x / 16 * RM, column0 = threadIdx.x % 16;
    const Rows<Cached> keys(k, a.k, a, tables, work), values(v, a.v, a, tables, work);
    const Rows<T> queries(q, a.q, work.sequence, work.head, work.q_start);
#if defined(CODES)
    const Rows<f16> key_scales(k_scales, scales.k, a, tables, work), value_scales(v_scales, scales.v, a, tables, work);
#define WIDEN_BLOCK(rows, key0, from) widen_codes<BN, CHUNK>(tile, rows##s, rows##_scales, key0, work.kv_len, a, from)
#else
#define WIDEN_BLOCK(rows, key0, from) widen_rows<BN, CHUNK>(tile, rows##s, key0, work.kv_len, a, from)
#endif
    widen_rows<BM, D>(q_tile, queries, work.first, work.q_len, a);

    const Scores scores(a, tables, work.sequence, work.head);
    Four o[RM][COLUMNS];
    f32 most[RM], sum[RM];
#pragma unroll
    for (int r = 0; r < RM; ++r) {
        most[r] = -infinity(), sum[r] = 0;
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) o[r][c] = Four{0, 0, 0, 0};
    }

#pragma unroll 1
    for (i32 block = work.begin; block < work.end; ++block) {
        const i32 key0 = block * BN;
        const bool has_missing = any_missing(a, tables, work, block);
        f32 s[RM][RN];
#pragma unroll
        for (int r = 0; r < RM; ++r)
#pragma unroll
            for (int n = 0; n < RN; ++n) s[r][n] = 0;
#pragma unroll
        for (int from = 0; from < D; from += CHUNK) {
            __syncthreads();
            WIDEN_BLOCK(key, key0, from);
            __syncthreads();
            const int width = D - from < CHUNK ? D - from : CHUNK;
#pragma unroll 2
            for (int d = 0; d < width; d += 4) {
                Four x[RM], y[RN];
#pragma unroll
                for (int r = 0; r < RM; ++r) x[r] = four(q_tile + (row0 + r) * WIDE + from + d);
#pragma unroll
                for (int n = 0; n < RN; ++n) y[n] = four(tile + (column0 + n * 16) * KV_WIDE + d);
#pragma unroll
                for (int e = 0; e < 4; ++e)
#pragma unroll
                    for (int r = 0; r < RM; ++r)
#pragma unroll
                        for (int n = 0; n < RN; ++n) s[r][n] = fmaf(x[r].at[e], y[n].at[e], s[r][n]);
            }
        }
#pragma unroll
        for (int r = 0; r < RM; ++r) {
            const KeyRange range = work.range(work.first + row0 + r, key0 + column0);
            f32 high = -infinity();
#pragma unroll
            for (int n = 0; n < RN; ++n) {
                if (scores.transformed) s[r][n] = scores.cap > 0 ? scores.soft_capped(s[r][n]) : scores.scaled(s[r][n]);
                if (scores.slope != 0) s[r][n] = scores.with_alibi(s[r][n], (f32)(range.own - n * 16));
                if (!range.sees(n * 16) || (has_missing && missing(a, tables, work.sequence, key0 + column0 + n * 16))) s[r][n] = -infinity();
                high = fmaxf(high, s[r][n]);
            }
            high = across_sixteen(high, [](f32 x, f32 y) { return fmaxf(x, y); }) * scores.factor;
            const f32 next = fmaxf(most[r], high), less = next == -infinity() ? 1 : exp2_approx(most[r] - next);
            most[r] = next;
            sum[r] *= less;
#pragma unroll
            for (int c = 0; c < COLUMNS; ++c)
#pragma unroll
                for (int e = 0; e < 4; ++e) o[r][c].at[e] *= less;
            const f32 base = next == -infinity() ? 0 : next;
#pragma unroll
            for (int n = 0; n < RN; ++n) {
                const f32 p = exp2_approx(scores.times_factor(s[r][n]) - base);
                sum[r] += p;
                p_tile[(row0 + r) * P_WIDE + column0 + n * 16] = p;
            }
        }
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
            __syncthreads();
            WIDEN_BLOCK(value, key0, part * CHUNK);
            __syncthreads();
#pragma unroll 1
            for (int n = 0; n < BN; n += 4) {
                Four p[RM];
#pragma unroll
                for (int r = 0; r < RM; ++r) p[r] = four(p_tile + (row0 + r) * P_WIDE + n);
#pragma unroll
                for (int e = 0; e < 4; ++e)
#pragma unroll
                    for (int i = 0; i < PART_COLUMNS; ++i) {
                        const int c = part * PART_COLUMNS + i, column = (column0 + i * 16) * 4;
                        if (c >= COLUMNS || (D / 4 % 16 != 0 && part * CHUNK + column >= D)) continue;
                        const Four y = four(tile + (n + e) * KV_WIDE + column);
#pragma unroll
                        for (int r = 0; r < RM; ++r)
#pragma unroll
                            for (int x = 0; x < 4; ++x) o[r][c].at[x] = fmaf(p[r].at[e], y.at[x], o[r][c].at[x]);
                    }
            }
        }
    }

    const Results to = results(a, sinks);
    T *const out_first = out + work.sequence * to.out.sequence + work.head * to.out.head + work.q_start * to.out.row;
#pragma unroll
    for (int r = 0; r < RM; ++r) {
        const f32 all = across_sixteen(sum[r], [](f32 x, f32 y) { return x + y; });
        const RowTotal total = row_total(most[r], all, to.sinks, work.head);
        const i32 query = work.first + row0 + r;
        if (query >= work.q_len) continue;
        if (lse && column0 == 0)
            lse[work.sequence * to.lse.sequence + work.head * to.lse.head + (work.q_start + query) * to.lse.row] =
                log_sum(total.most, total.sum);
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
            const int column = (column0 + c * 16) * 4;
            if (column < a.dim) store_run<4>(out_first + query * to.out.row + column, o[r][c].at, total.share, a.aligned);
        }
    }
}
