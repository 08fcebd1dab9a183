// warpwave: needs sm_90a
// Flash attention with Hopper's warpgroup MMA (wgmma), which reads operands from shared memory: NVIDIA sm_90a only.
//
// Warp-specialized: the first warpgroup loads keys and values, two warps each, STAGES blocks ahead; GROUPS warpgroups compute 64 queries
// each. The scores of the next block are computed while the values of the last are accumulated, and the softmax overlaps with that. Two
// groups alternate in issuing wgmma, so that one's softmax overlaps with the other's products.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME flash_f16
#define T f16
#define D 64
#define BN 128
#define GROUPS 3
#define STAGES 2
#define PAGED 0
#endif

#include "attention/attention.cuh"
#include "attention/kv_tile.cuh"
#include "common/sm90.cuh"
#include "common/tile.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

#define BM (64 * GROUPS)
#define THREADS (128 * (GROUPS + 1))
// Bytes between the panels of a tile.
#define PANEL(ROWS) ((ROWS) * 128)
#define WIDE ((D + 63) / 64 * 64)

// Registers of the loader and the compute warpgroups (setmaxnreg): in total no more than the block was launched with, or it deadlocks.
#define LOADER_REGISTERS (GROUPS == 3 ? 32 : D == 256 ? 40 : PAGED ? 48 : D == 192 ? 72 : 40)
#define COMPUTE_REGISTERS (((GROUPS == 3 ? 4 * 128 : 3 * 168) - LOADER_REGISTERS) / GROUPS / 8 * 8)

__device__ inline void wait_all_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
// 64 × N of c += a · b with a in registers.
#define WGMMA_ACCUMULATE(T, NAME, N, R, NUMBERS, A, B)                                                                             \
    __device__ inline void accumulate(T, Width<N>, f32 *c, const u32 *a, u64 b) {                                                  \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." NAME "." NAME " {" NUMBERS "}, {" A "}, " B ", 1, 1, 1, 1;" \
                     : R(c, 0)                                                                                                     \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)                                                          \
                     : "memory");                                                                                                  \
    }
#define WGMMA_ACCUMULATE_FOR(T, NAME)                                                                                              \
    WGMMA_ACCUMULATE(T, NAME, 32, R16, N16, "%16, %17, %18, %19", "%20")                                                           \
    WGMMA_ACCUMULATE(T, NAME, 64, R32, N32, "%32, %33, %34, %35", "%36")                                                           \
    WGMMA_ACCUMULATE(T, NAME, 128, R64, N64, "%64, %65, %66, %67", "%68")
WGMMA_ACCUMULATE_FOR(f16, "f16")
WGMMA_ACCUMULATE_FOR(bf16, "bf16")

// Accumulates the columns from FROM on, with the widest wgmma that fits.
template <int FROM> __device__ inline void accumulate_columns(f32 *o, const u32 *p, u32 v_tile) {
    constexpr int rest = D - FROM, width = rest >= 128 ? 128 : rest >= 64 ? 64 : 32;
    if constexpr (rest > 0) {
        accumulate(T(), Width<width>(), o + FROM / 2, p, descriptor(v_tile + FROM / 64 * PANEL(BN), PANEL(BN)));
        accumulate_columns<FROM + width>(o, p, v_tile);
    }
}

// Applies f(score, key range of its query, key relative to the lane's first) to every score.
template <int N, class F> __device__ inline void each(f32 (&s)[N], const KeyRange (&range)[2], F f) {
#pragma unroll
    for (int i = 0; i < N; ++i) s[i] = f(s[i], range[i / 2 % 2], i / 4 * 8 + i % 2);
}

// Loads the rows of a paged block: two warps take four of every eight rows each. The lanes look up BN / 2 row addresses in advance and
// exchange them by shuffles.
struct PageLoader {
    const T *rows_at[BN / 64];
    bool any_missing;

    __device__ void find(const Rows<T> &rows, i32 first, i32 end, int wave, int lane) {
        bool named = true;
#pragma unroll
        for (int i = 0; i < BN / 64; ++i) {
            const i32 row = first + (i * 8 + lane / 4) * 8 + wave * 4 + lane % 4;
            rows_at[i] = row < end ? rows.at(row) : nullptr;
            named &= row >= end || rows_at[i];
        }
        any_missing = !__all_sync(0xffffffffu, named);
    }
    // Missing rows and columns beyond head_dim become zeros.
    __device__ void load(T *to, i32 dim, int wave, int lane) const {
        const int row0 = wave * 4 + lane / 8, chunk = lane % 8;
        to += row0 * 64 + (chunk ^ row0) * 8;
#pragma unroll
        for (int i = 0; i < BN / 8; ++i) {
            const T *const row = (const T *)__shfl_sync(0xffffffffu, (u64)rows_at[i / 8], i % 8 * 4 + lane / 8);
#pragma unroll
            for (int panel = 0; panel < WIDE / 64; ++panel)
                copy_async16(to + (panel * BN + i * 8) * 64, row + chunk * 8 + panel * 64, row && panel * 64 + chunk * 8 < dim ? 16 : 0);
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    NAME(const T *q, const T *k, const T *v, TABLE_PARAMETERS, const __grid_constant__ Attention a, T *out, f32 *lse) {
    extern __shared__ __align__(1024) u8 shared[];
    const Tables tables = TABLES;
    const Work<BM, BN> work(a, tables, blockIdx.x);
    if (work.idle()) return;

    // Tiles aligned to 1024 bytes; then the barriers (full and empty, for keys and values, per stage); then, per stage and loader warp,
    // whether keys are missing.
    T *const q_first = (T *)(shared + (0 - shared_address_of(shared)) % 1024);
    T *const k_first = q_first + BM * WIDE, *const v_first = k_first + STAGES * BN * WIDE;
    const u32 tile = BN * WIDE * 2, q_tile = shared_address_of(q_first), k_tiles = shared_address_of(k_first), v_tiles = shared_address_of(v_first);
    const u32 barriers = v_tiles + STAGES * tile;
    volatile u32 *const has_missing = (u32 *)(v_first + STAGES * BN * WIDE) + STAGES * 8;
    auto full = [&](int which, int stage) { return Barrier{barriers + (which * STAGES + stage) * 16}; };
    auto empty = [&](int which, int stage) { return Barrier{barriers + (which * STAGES + stage) * 16 + 8}; };
    if (threadIdx.x < 2 * STAGES) {
        full(0, threadIdx.x).init(64);
        empty(0, threadIdx.x).init(GROUPS * 4);
    }
    __syncthreads();

    const int blocks = work.end - work.begin;
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(LOADER_REGISTERS));
        const int which = threadIdx.x / 64;
        const Rows<T> rows(which ? v : k, which ? a.v : a.k, a, tables, work);
        T *const tiles = which ? v_first : k_first;
        const int wave = threadIdx.x / 32 % 2, lane = threadIdx.x % 32;
        int stage = 0;
        u32 phase = 1;
        PageLoader pages;
        if (PAGED) pages.find(rows, work.begin * BN, work.kv_len, wave, lane);
#pragma unroll 1
        for (i32 block = work.begin; block < work.end; ++block) {
            empty(which, stage).wait(phase);
            T *const to = tiles + stage * BN * WIDE;
            if (PAGED) {
                pages.load(to, a.dim, wave, lane);
                if (which == 0 && lane == 0) has_missing[stage * 2 + wave] = pages.any_missing;
                pages.find(rows, (block + 1) * BN, work.kv_len, wave, lane);
            } else {
                load_tile<D, BN, 64, false>(to, rows, block * BN, work.kv_len, a, threadIdx.x % 64);
            }
            wait_all_copies();
            fence_async_proxy();
            full(which, stage).arrive();
            if (++stage == STAGES) stage = 0, phase ^= 1;
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COMPUTE_REGISTERS));
        const int group = threadIdx.x / 128 - 1, thread = threadIdx.x % 128, wave = thread / 32, lane = thread % 32;
        const u32 own_q = q_tile + group * 64 * WIDE * 2;
        const Rows<T> queries(q, a.q, work.sequence, work.head, work.q_start);
        load_tile<D, 64, 128, false>(q_first + group * 64 * WIDE, queries, work.first + group * 64, work.q_len, a, thread);
        wait_all_copies();
        fence_async_proxy();
        asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");

        const Scores scores(a, tables, work.sequence, work.head);
        const i32 query0 = work.first + group * 64 + wave * 16 + lane / 4;
        f32 o[D / 2], s[BN / 2], most[2] = {-infinity(), -infinity()}, sum[2] = {0, 0}, less[2];
        u32 p[BN / 4];
#pragma unroll
        for (int i = 0; i < D / 2; ++i) o[i] = 0;

        auto release = [&](int which, int stage) {
            if (lane == 0) empty(which, stage).arrive();
        };
        bool missing = false;
        auto start_scores = [&](int stage) {
            if (PAGED) missing = __any_sync(0xffffffffu, has_missing[stage * 2] | has_missing[stage * 2 + 1]);
            begin();
#pragma unroll
            for (int d = 0; d < D / 16; ++d)
                multiply(T(), Width<BN>(), s, descriptor(own_q + d / 4 * PANEL(64) + d % 4 * 32, 16),
                      descriptor(k_tiles + stage * tile + d / 4 * PANEL(BN) + d % 4 * 32, 16), d > 0);
            commit();
        };
        auto start_sums = [&](int stage) {
            begin();
#pragma unroll
            for (int c = 0; c < BN / 16; ++c) accumulate_columns<0>(o, p + 4 * c, v_tiles + stage * tile + c * 16 * 128);
            commit();
        };
        // Online softmax of a block: scores become weights. Returns whether the accumulators must be multiplied by `less`.
        auto softmax_step = [&](i32 block) {
            const i32 key = block * BN + lane % 4 * 2;
            const KeyRange range[2] = {work.range(query0, key), work.range(query0 + 8, key)};
            if (scores.cap > 0) each(s, range, [&](f32 x, const KeyRange &, int) { return scores.soft_capped(x); });
            else if (scores.transformed) each(s, range, [&](f32 x, const KeyRange &, int) { return scores.scaled(x); });
            if (scores.slope != 0)
                each(s, range, [&](f32 x, const KeyRange &row, int key) { return scores.with_alibi(x, (f32)row.own - (f32)key); });
            if (work.masked(block)) each(s, range, [&](f32 x, const KeyRange &row, int key) { return row.sees(key) ? x : -infinity(); });
            if (PAGED && missing) {
                const MissingKeys<BN> missing_keys(a, tables, work.sequence, key);
                each(s, range, [&](f32 x, const KeyRange &, int key) { return missing_keys.at(key) ? -infinity() : x; });
            }
            f32 high[2] = {s[0], s[2]};
#pragma unroll
            for (int i = 0; i < BN / 2; ++i) high[i / 2 % 2] = fmaxf(high[i / 2 % 2], s[i]);
            bool rescale = false;
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                high[r] = fmaxf(high[r], __shfl_xor_sync(0xffffffffu, high[r], 1));
                high[r] = fmaxf(high[r], __shfl_xor_sync(0xffffffffu, high[r], 2)) * scores.factor;
                rescale |= high[r] > most[r] + RESCALE_THRESHOLD;
            }
            rescale = __any_sync(0xffffffffu, rescale);
            if (rescale) {
#pragma unroll
                for (int r = 0; r < 2; ++r) {
                    const f32 next = fmaxf(most[r], high[r]);
                    less[r] = next == -infinity() ? 1 : exp2_approx(most[r] - next);
                    most[r] = next;
                    sum[r] *= less[r];
                }
            }
            const f32 base[2] = {most[0] == -infinity() ? 0 : -most[0], most[1] == -infinity() ? 0 : -most[1]};
            f32 factor = scores.factor;
            if (__any_sync(0xffffffffu, fmaxf(fabsf(base[0]), fabsf(base[1])) > FUSED_LIMIT)) {
                each(s, range, [&](f32 x, const KeyRange &, int) { return x * factor; });
                factor = 1;
            }
#pragma unroll
            for (int i = 0; i < BN / 2; ++i) {
                s[i] = exp2_approx(fmaf(s[i], factor, base[i / 2 % 2]));
                sum[i / 2 % 2] += s[i];
            }
            return rescale;
        };
        auto pack_weights = [&]() {
#pragma unroll
            for (int i = 0; i < BN / 4; ++i) p[i] = pair<T>(s[2 * i], s[2 * i + 1]);
        };
#if GROUPS == 2
        auto wait_turn = [&]() { asm volatile("bar.sync %0, 256;" ::"r"(4 + group) : "memory"); };
        auto pass_turn = [&]() { asm volatile("bar.arrive %0, 256;" ::"r"(4 + 1 - group) : "memory"); };
        if (group == 1) pass_turn();
#endif

        if (blocks > 0) {
            full(0, 0).wait(0);
            start_scores(0);
            wait<0>();
            mark_written(s);
            release(0, 0);
            softmax_step(work.begin);
            pack_weights();
            int k_stage = 1 % STAGES, v_stage = 0;
            u32 k_phase = STAGES == 1, v_phase = 0;
#pragma unroll 1
            for (i32 block = work.begin + 1; block < work.end; ++block) {
                full(0, k_stage).wait(k_phase);
#if GROUPS == 2
                wait_turn();
#endif
                start_scores(k_stage);
                full(1, v_stage).wait(v_phase);
                start_sums(v_stage);
#if GROUPS == 2
                if (group == 0 || block + 1 < work.end) pass_turn();
#endif
                wait<1>();
                mark_written(s);
                release(0, k_stage);
                const bool rescale = softmax_step(block);
                wait<0>();
                mark_written(o);
                release(1, v_stage);
                if (rescale) {
#pragma unroll
                    for (int i = 0; i < D / 2; ++i) o[i] *= less[i / 2 % 2];
                }
                pack_weights();
                if (++k_stage == STAGES) k_stage = 0, k_phase ^= 1;
                if (++v_stage == STAGES) v_stage = 0, v_phase ^= 1;
            }
            full(1, v_stage).wait(v_phase);
            start_sums(v_stage);
            wait<0>();
            mark_written(o);
        }

        const Results to = results(a, sinks);
        T *const out_first = out + work.sequence * to.out.sequence + work.head * to.out.head + work.q_start * to.out.row;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            f32 all = sum[r] + __shfl_xor_sync(0xffffffffu, sum[r], 1);
            all += __shfl_xor_sync(0xffffffffu, all, 2);
            const RowTotal total = row_total(most[r], all, to.sinks, work.head);
            const i32 query = query0 + r * 8;
            if (query >= work.q_len) continue;
            const i64 lse_at = work.sequence * to.lse.sequence + work.head * to.lse.head + (work.q_start + query) * to.lse.row;
            if (lse && lane % 4 == 0) lse[lse_at] = log_sum(total.most, total.sum);
            T *const row = out_first + query * to.out.row + lane % 4 * 2;
#pragma unroll
            for (int n = 0; n < D / 8; ++n)
                if (n * 8 < a.dim) store_run<2>(row + n * 8, &o[n * 4 + r * 2], total.share, true);
        }
    }
}

#else
extern "C" __global__ void NAME() {}
#endif
