// Flash attention with f32 FMAs: for f32, and for GPUs without matrix units.
//
// 16 × 16 threads: a thread has BM / 16 queries, and of them every 16th key and every 16th group of four result columns.

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
#define P_WIDE (BN + 4)
// Groups of four columns per thread.
#define COLUMNS ((D / 4 + 15) / 16)

struct alignas(16) Four { f32 at[4]; };
__device__ inline Four four(const f32 *from) { return *(const Four *)from; }

// Loads in flight per thread; AMD has too few scalar registers for more.
#if defined(__AMDGCN__)
#define AHEAD 4
#else
#define AHEAD 8
#endif

// Loads ROWS rows from row `first` as f32; rows from `end` on and columns beyond head_dim become zeros.
template <int ROWS> __device__ inline void widen_rows(f32 *to, const Rows<T> &rows, i32 first, i32 end, const Attention &a) {
    struct alignas(4 * sizeof(T)) Run { T at[4]; };
    const T zero = Narrow<T>::from(0);
    const bool whole = a.aligned && !rows.table;
#pragma unroll 1
    for (int start = threadIdx.x; start < ROWS * (D / 4); start += AHEAD * THREADS) {
        Run runs[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; ++i) {
            const int chunk = start + i * THREADS, row = chunk / (D / 4), column = chunk % (D / 4) * 4;
            const bool there = row < ROWS && first + row < end && column < a.dim;
            runs[i] = Run{{zero, zero, zero, zero}};
            if (whole) {
                if (there) runs[i] = *(const Run *)(rows.base + (first + row) * rows.step + column);
            } else if (const T *from = there ? rows.at(first + row) : nullptr) {
#pragma unroll
                for (int e = 0; e < 4; ++e) runs[i].at[e] = from[column + e];
            }
        }
#pragma unroll
        for (int i = 0; i < AHEAD; ++i) {
            const int chunk = start + i * THREADS, row = chunk / (D / 4), column = chunk % (D / 4) * 4;
            if (row >= ROWS) break;
            Four wide;
#pragma unroll
            for (int e = 0; e < 4; ++e) wide.at[e] = widen(runs[i].at[e]);
            *(Four *)(to + row * WIDE + column) = wide;
        }
    }
}

#if defined(CODES)
// As `widen_rows`, from a quantized cache.
template <int ROWS>
__device__ inline void widen_codes(f32 *to, const Rows<Code> &rows, const Rows<f16> &scales, i32 first, i32 end, const Attention &a) {
#pragma unroll 2
    for (int i = threadIdx.x; i < ROWS * (D / 8); i += THREADS) {
        const int row = i / (D / 8), column = i % (D / 8) * 8;
        const Code *const from = first + row < end && column < a.dim ? rows.at(first + row) : nullptr;
        Four wide[2] = {};
        if (from) {
            const Pack<Code, 8> codes = get_codes(from + column, a.aligned);
            const f32 scale = widen(scales.at(first + row)[group_of(column)]);
#pragma unroll
            for (int e = 0; e < 8; ++e) wide[e / 4].at[e % 4] = widen(codes.at[e]) * scale;
        }
        *(Four *)(to + row * WIDE + column) = wide[0];
        *(Four *)(to + row * WIDE + column + 4) = wide[1];
    }
}
#endif

template <class F> __device__ inline f32 across_sixteen(f32 value, F f) {
#pragma unroll
    for (int apart = 1; apart < 16; apart *= 2) value = f(value, __shfl_xor_sync(0xffffffffu, value, apart));
    return value;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    NAME(const T *q, const Cached *k, const Cached *v, const f32 *slopes, const i32 *q_starts, const i32 *kv_starts, const i32 *kv_lengths,
         const i32 *pages, const __grid_constant__ Attention a, T *out, f32 *lse CACHE_SCALES) {
    extern __shared__ __align__(16) f32 shared[];
    const Tables tables = {slopes, q_starts, kv_starts, kv_lengths, pages};
    const Work<BM, BN> work(a, tables, blockIdx.x);
    if (work.idle()) return;

    f32 *const q_tile = shared, *const tile = q_tile + BM * WIDE, *const p_tile = tile + BN * WIDE;
    const int row0 = threadIdx.x / 16 * RM, column0 = threadIdx.x % 16;
    const Rows<Cached> keys(k, a.k, a, tables, work), values(v, a.v, a, tables, work);
    const Rows<T> queries(q, a.q, work.sequence, work.head, work.q_start);
#if defined(CODES)
    const Rows<f16> key_scales(k_scales, scales.k, a, tables, work), value_scales(v_scales, scales.v, a, tables, work);
#define WIDEN_BLOCK(rows, key0) widen_codes<BN>(tile, rows##s, rows##_scales, key0, work.kv_len, a)
#else
#define WIDEN_BLOCK(rows, key0) widen_rows<BN>(tile, rows##s, key0, work.kv_len, a)
#endif
    widen_rows<BM>(q_tile, queries, work.first, work.q_len, a);

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
        __syncthreads();
        WIDEN_BLOCK(key, key0);
        __syncthreads();
        f32 s[RM][RN];
#pragma unroll
        for (int r = 0; r < RM; ++r)
#pragma unroll
            for (int n = 0; n < RN; ++n) s[r][n] = 0;
#pragma unroll 2
        for (int d = 0; d < D; d += 4) {
            Four x[RM], y[RN];
#pragma unroll
            for (int r = 0; r < RM; ++r) x[r] = four(q_tile + (row0 + r) * WIDE + d);
#pragma unroll
            for (int n = 0; n < RN; ++n) y[n] = four(tile + (column0 + n * 16) * WIDE + d);
#pragma unroll
            for (int e = 0; e < 4; ++e)
#pragma unroll
                for (int r = 0; r < RM; ++r)
#pragma unroll
                    for (int n = 0; n < RN; ++n) s[r][n] = fmaf(x[r].at[e], y[n].at[e], s[r][n]);
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
        __syncthreads();
        WIDEN_BLOCK(value, key0);
        __syncthreads();
#pragma unroll 1
        for (int n = 0; n < BN; n += 4) {
            Four p[RM];
#pragma unroll
            for (int r = 0; r < RM; ++r) p[r] = four(p_tile + (row0 + r) * P_WIDE + n);
#pragma unroll
            for (int e = 0; e < 4; ++e)
#pragma unroll
                for (int c = 0; c < COLUMNS; ++c) {
                    const int column = (column0 + c * 16) * 4;
                    if (D / 4 % 16 != 0 && column >= D) continue;
                    const Four y = four(tile + (n + e) * WIDE + column);
#pragma unroll
                    for (int r = 0; r < RM; ++r)
#pragma unroll
                        for (int i = 0; i < 4; ++i) o[r][c].at[i] = fmaf(p[r].at[e], y.at[i], o[r][c].at[i]);
                }
        }
    }

    const Results to = results(a);
    T *const out_first = out + work.sequence * to.out.sequence + work.head * to.out.head + work.q_start * to.out.row;
#pragma unroll
    for (int r = 0; r < RM; ++r) {
        const f32 all = across_sixteen(sum[r], [](f32 x, f32 y) { return x + y; }), share = all == 0 ? 0 : 1 / all;
        const i32 query = work.first + row0 + r;
        if (query >= work.q_len) continue;
        if (lse && column0 == 0)
            lse[work.sequence * to.lse.sequence + work.head * to.lse.head + (work.q_start + query) * to.lse.row] = log_sum(most[r], all);
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
            const int column = (column0 + c * 16) * 4;
            if (column < a.dim) store_run<4>(out_first + query * to.out.row + column, o[r][c].at, share, a.aligned);
        }
    }
}
