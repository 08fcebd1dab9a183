// Attention on Hopper's matrix units, which four waves use together and which read shared memory themselves: NVIDIA sm_90a alone.
//
// The first four waves fetch keys and values, two waves each, STAGES blocks ahead; the others are GROUPS times four waves with 64 queries
// each. A group's next scores are computed while its last values are summed up, and the softmax between them runs beside the sums; two
// groups take turns at starting products, so that one's softmax runs beside the other's products too.

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

#define BM (64 * GROUPS)
#define THREADS (128 * (GROUPS + 1))
// Bytes between panels of a tile.
#define PANEL(ROWS) ((ROWS) * 128)
#define WIDE ((D + 63) / 64 * 64)

// Registers of the waves that fetch, and of those that compute: together no more than the block was launched with, or they wait for ever.
#define FEW (GROUPS == 3 ? 32 : D == 256 ? 40 : PAGED ? 48 : D == 192 ? 72 : 40)
#define MANY (((GROUPS == 3 ? 4 * 128 : 3 * 168) - FEW) / GROUPS / 8 * 8)

__device__ inline u32 shared_place(const void *at) { return (u32)__cvta_generic_to_shared(at); }

// Barriers in shared memory: so many arrivals end a phase; whoever waits says which, odd or even.
struct Barrier {
    u32 at;
    __device__ void init(u32 count) const { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory"); }
    __device__ void arrive() const { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory"); }
    __device__ void wait(u32 phase) const {
        asm volatile("{\n"
                     ".reg .pred done;\n"
                     "again:\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                     "@!done bra again;\n"
                     "}" ::"r"(at), "r"(phase)
                     : "memory");
    }
};

__device__ inline void wait_all_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
// Ordinary writes of this thread become visible to the matrix units.
__device__ inline void publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Asynchronous products: between begin() and commit() they are started, wait<N>() leaves N commits under way.
__device__ inline void begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int LATER> __device__ inline void wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LATER) : "memory"); }
// The compiler does not know when they are written.
template <int N> __device__ inline void written(f32 (&x)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) asm volatile("" : "+f"(x[i])::"memory");
}

// Where a tile lies: panels with their pieces exchanged; from panel to panel, and from eight rows to the next.
__device__ inline u64 describe(u32 at, u32 panel) { return (u64)(at >> 4) | (u64)(panel >> 4) << 16 | (u64)(1024 >> 4) << 32 | 1ull << 62; }

#define R4(c, i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])
#define R16(c, i) R4(c, i), R4(c, i + 4), R4(c, i + 8), R4(c, i + 12)
#define R32(c, i) R16(c, i), R16(c, i + 16)
#define R64(c, i) R32(c, i), R32(c, i + 32)
#define N16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define N32 N16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define N64                                                                                                                        \
    N32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, "   \
        "%56, %57, %58, %59, %60, %61, %62, %63"

// 64 × N of c = a · b (+ c), a by rows, b's columns as rows; and c += a · b with a in registers, b by rows.
template <int N> struct Width {};
#define SCORES(T, NAME, N, R, NUMBERS, A, B, KEEP)                                                                                 \
    __device__ inline void score(T, Width<N>, f32 *c, u64 a, u64 b, int keep) {                                                    \
        asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, " KEEP ", 0;\n"                                                       \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." NAME "." NAME " {" NUMBERS "}, " A ", " B ", keep, 1, 1, 0, 0;\n}" \
                     : R(c, 0)                                                                                                     \
                     : "l"(a), "l"(b), "r"(keep)                                                                                   \
                     : "memory");                                                                                                  \
    }
#define SUMS(T, NAME, N, R, NUMBERS, A, B)                                                                                         \
    __device__ inline void sum_up(T, Width<N>, f32 *c, const u32 *a, u64 b) {                                                      \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." NAME "." NAME " {" NUMBERS "}, {" A "}, " B ", 1, 1, 1, 1;"    \
                     : R(c, 0)                                                                                                     \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)                                                          \
                     : "memory");                                                                                                  \
    }
#define PRODUCTS_OF(T, NAME)                                                                                                       \
    SCORES(T, NAME, 64, R32, N32, "%32", "%33", "%34")                                                                             \
    SCORES(T, NAME, 128, R64, N64, "%64", "%65", "%66")                                                                            \
    SUMS(T, NAME, 32, R16, N16, "%16, %17, %18, %19", "%20")                                                                       \
    SUMS(T, NAME, 64, R32, N32, "%32, %33, %34, %35", "%36")                                                                       \
    SUMS(T, NAME, 128, R64, N64, "%64, %65, %66, %67", "%68")
PRODUCTS_OF(f16, "f16")
PRODUCTS_OF(bf16, "bf16")

// Columns from FROM on, in the widest products that there are.
template <int FROM> __device__ inline void sum_columns(f32 *o, const u32 *p, u32 v_tile) {
    constexpr int rest = D - FROM, width = rest >= 128 ? 128 : rest >= 64 ? 64 : 32;
    if constexpr (rest > 0) {
        sum_up(T(), Width<width>(), o + FROM / 2, p, describe(v_tile + FROM / 64 * PANEL(BN), PANEL(BN)));
        sum_columns<FROM + width>(o, p, v_tile);
    }
}

// Each score becomes something, given what its query sees and its key, counted from this lane's first.
template <int N, class F> __device__ inline void each(f32 (&s)[N], const Sight (&sight)[2], F become) {
#pragma unroll
    for (int i = 0; i < N; ++i) s[i] = become(s[i], sight[i / 2 % 2], i / 4 * 8 + i % 2);
}

// The rows of a block that a wave brings from pages: of two waves each has four of every eight. Its lanes look up BN / 2 places together,
// before there is room for them, and ask each other.
struct Pages {
    const T *places[BN / 64];
    bool some_missing;

    __device__ void find(const Rows<T> &rows, i32 first, i32 end, int wave, int lane) {
        bool named = true;
#pragma unroll
        for (int i = 0; i < BN / 64; ++i) {
            const i32 row = first + (i * 8 + lane / 4) * 8 + wave * 4 + lane % 4;
            places[i] = row < end ? rows.at(row) : nullptr;
            named &= row >= end || places[i];
        }
        some_missing = !__all_sync(0xffffffffu, named);
    }
    // Rows that are nowhere, and columns beyond the head's size, become zeros.
    __device__ void bring(T *to, i32 dim, int wave, int lane) const {
        const int row0 = wave * 4 + lane / 8, piece = lane % 8;
        to += row0 * 64 + (piece ^ row0) * 8;
#pragma unroll
        for (int i = 0; i < BN / 8; ++i) {
            const T *const row = (const T *)__shfl_sync(0xffffffffu, (u64)places[i / 8], i % 8 * 4 + lane / 8);
#pragma unroll
            for (int panel = 0; panel < WIDE / 64; ++panel)
                copy_async16(to + (panel * BN + i * 8) * 64, row + piece * 8 + panel * 64, row && panel * 64 + piece * 8 < dim ? 16 : 0);
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    NAME(const T *q, const T *k, const T *v, const f32 *slopes, const i32 *q_starts, const i32 *kv_starts, const i32 *kv_lengths,
         const i32 *pages, const __grid_constant__ Attention a, T *out, f32 *lse) {
    extern __shared__ __align__(1024) u8 shared[];
    const Tables tables = {slopes, q_starts, kv_starts, kv_lengths, pages};
    const Work<BM, BN> work(a, tables, blockIdx.x);
    if (work.idle()) return;

    // Tiles at multiples of 1024 bytes, then the barriers: of the keys and values of each stage, full and empty. Then, for each stage and
    // each of two waves, whether some of the keys are in no page.
    T *const q_first = (T *)(shared + (0 - shared_place(shared)) % 1024);
    T *const k_first = q_first + BM * WIDE, *const v_first = k_first + STAGES * BN * WIDE;
    const u32 tile = BN * WIDE * 2, q_tile = shared_place(q_first), k_tiles = shared_place(k_first), v_tiles = shared_place(v_first);
    const u32 barriers = v_tiles + STAGES * tile;
    volatile u32 *const holes = (u32 *)(v_first + STAGES * BN * WIDE) + STAGES * 8;
    auto full = [&](int which, int stage) { return Barrier{barriers + (which * STAGES + stage) * 16}; };
    auto empty = [&](int which, int stage) { return Barrier{barriers + (which * STAGES + stage) * 16 + 8}; };
    if (threadIdx.x < 2 * STAGES) {
        full(0, threadIdx.x).init(64);
        empty(0, threadIdx.x).init(GROUPS * 4);
    }
    __syncthreads();

    const int blocks = work.end - work.begin;
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(FEW));
        const int which = threadIdx.x / 64;
        const Rows<T> rows(which ? v : k, which ? a.v : a.k, a, tables, work);
        T *const tiles = which ? v_first : k_first;
        const int wave = threadIdx.x / 32 % 2, lane = threadIdx.x % 32;
        int stage = 0;
        u32 phase = 1;
        Pages pages;
        if (PAGED) pages.find(rows, work.begin * BN, work.kv_len, wave, lane);
#pragma unroll 1
        for (i32 block = work.begin; block < work.end; ++block) {
            empty(which, stage).wait(phase);
            T *const to = tiles + stage * BN * WIDE;
            if (PAGED) {
                pages.bring(to, a.dim, wave, lane);
                if (which == 0 && lane == 0) holes[stage * 2 + wave] = pages.some_missing;
                pages.find(rows, (block + 1) * BN, work.kv_len, wave, lane);
            } else {
                fetch<D, BN, 64, false>(to, rows, block * BN, work.kv_len, a, threadIdx.x % 64);
            }
            wait_all_copies();
            publish();
            full(which, stage).arrive();
            if (++stage == STAGES) stage = 0, phase ^= 1;
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(MANY));
        const int group = threadIdx.x / 128 - 1, thread = threadIdx.x % 128, wave = thread / 32, lane = thread % 32;
        const u32 own_q = q_tile + group * 64 * WIDE * 2;
        const Rows<T> queries(q, a.q, work.sequence, work.head, work.q_start);
        fetch<D, 64, 128, false>(q_first + group * 64 * WIDE, queries, work.first + group * 64, work.q_len, a, thread);
        wait_all_copies();
        publish();
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
            if (PAGED) missing = __any_sync(0xffffffffu, holes[stage * 2] | holes[stage * 2 + 1]);
            begin();
#pragma unroll
            for (int d = 0; d < D / 16; ++d)
                score(T(), Width<BN>(), s, describe(own_q + d / 4 * PANEL(64) + d % 4 * 32, 16),
                      describe(k_tiles + stage * tile + d / 4 * PANEL(BN) + d % 4 * 32, 16), d > 0);
            commit();
        };
        auto start_sums = [&](int stage) {
            begin();
#pragma unroll
            for (int c = 0; c < BN / 16; ++c) sum_columns<0>(o, p + 4 * c, v_tiles + stage * tile + c * 16 * 128);
            commit();
        };
        // Scores to powers; whether what was summed up so far must become `less`.
        auto soften = [&](i32 block) {
            const i32 key = block * BN + lane % 4 * 2;
            const Sight sight[2] = {work.sight(query0, key), work.sight(query0 + 8, key)};
            if (scores.cap > 0) each(s, sight, [&](f32 x, const Sight &, int) { return scores.capped(x); });
            else if (scores.bent) each(s, sight, [&](f32 x, const Sight &, int) { return scores.scaled(x); });
            if (scores.slope != 0)
                each(s, sight, [&](f32 x, const Sight &row, int key) { return scores.sloped(x, (f32)row.own - (f32)key); });
            if (work.masked(block)) each(s, sight, [&](f32 x, const Sight &row, int key) { return row.sees(key) ? x : -infinity(); });
            if (PAGED && missing) {
                const Holes<BN> hole(a, tables, work.sequence, key);
                each(s, sight, [&](f32 x, const Sight &, int key) { return hole.at(key) ? -infinity() : x; });
            }
            f32 high[2] = {s[0], s[2]};
#pragma unroll
            for (int i = 0; i < BN / 2; ++i) high[i / 2 % 2] = fmaxf(high[i / 2 % 2], s[i]);
            bool behind = false;
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                high[r] = fmaxf(high[r], __shfl_xor_sync(0xffffffffu, high[r], 1));
                high[r] = fmaxf(high[r], __shfl_xor_sync(0xffffffffu, high[r], 2)) * scores.factor;
                behind |= high[r] > most[r] + SLACK;
            }
            behind = __any_sync(0xffffffffu, behind);
            if (behind) {
#pragma unroll
                for (int r = 0; r < 2; ++r) {
                    const f32 next = fmaxf(most[r], high[r]);
                    less[r] = next == -infinity() ? 1 : bare_exp2(most[r] - next);
                    most[r] = next;
                    sum[r] *= less[r];
                }
            }
            const f32 base[2] = {most[0] == -infinity() ? 0 : -most[0], most[1] == -infinity() ? 0 : -most[1]};
            f32 factor = scores.factor;
            if (__any_sync(0xffffffffu, fmaxf(fabsf(base[0]), fabsf(base[1])) > FAR)) {
                each(s, sight, [&](f32 x, const Sight &, int) { return x * factor; });
                factor = 1;
            }
#pragma unroll
            for (int i = 0; i < BN / 2; ++i) {
                s[i] = bare_exp2(fmaf(s[i], factor, base[i / 2 % 2]));
                sum[i / 2 % 2] += s[i];
            }
            return behind;
        };
        auto narrow = [&]() {
#pragma unroll
            for (int i = 0; i < BN / 4; ++i) p[i] = pair<T>(s[2 * i], s[2 * i + 1]);
        };
#if GROUPS == 2
        auto my_turn = [&]() { asm volatile("bar.sync %0, 256;" ::"r"(4 + group) : "memory"); };
        auto your_turn = [&]() { asm volatile("bar.arrive %0, 256;" ::"r"(4 + 1 - group) : "memory"); };
        if (group == 1) your_turn();
#endif

        if (blocks > 0) {
            full(0, 0).wait(0);
            start_scores(0);
            wait<0>();
            written(s);
            release(0, 0);
            soften(work.begin);
            narrow();
            int k_stage = 1 % STAGES, v_stage = 0;
            u32 k_phase = STAGES == 1, v_phase = 0;
#pragma unroll 1
            for (i32 block = work.begin + 1; block < work.end; ++block) {
                full(0, k_stage).wait(k_phase);
#if GROUPS == 2
                my_turn();
#endif
                start_scores(k_stage);
                full(1, v_stage).wait(v_phase);
                start_sums(v_stage);
#if GROUPS == 2
                if (group == 0 || block + 1 < work.end) your_turn();
#endif
                wait<1>();
                written(s);
                release(0, k_stage);
                const bool behind = soften(block);
                wait<0>();
                written(o);
                release(1, v_stage);
                if (behind) {
#pragma unroll
                    for (int i = 0; i < D / 2; ++i) o[i] *= less[i / 2 % 2];
                }
                narrow();
                if (++k_stage == STAGES) k_stage = 0, k_phase ^= 1;
                if (++v_stage == STAGES) v_stage = 0, v_phase ^= 1;
            }
            full(1, v_stage).wait(v_phase);
            start_sums(v_stage);
            wait<0>();
            written(o);
        }

        const Results to = results(a);
        T *const out_first = out + work.sequence * to.out.sequence + work.head * to.out.head + work.q_start * to.out.row;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            f32 all = sum[r] + __shfl_xor_sync(0xffffffffu, sum[r], 1);
            all += __shfl_xor_sync(0xffffffffu, all, 2);
            const f32 share = all == 0 ? 0 : 1 / all;
            const i32 query = query0 + r * 8;
            if (query >= work.q_len) continue;
            const i64 lse_at = work.sequence * to.lse.sequence + work.head * to.lse.head + (work.q_start + query) * to.lse.row;
            if (lse && lane % 4 == 0) lse[lse_at] = log_sum(most[r], all);
            T *const row = out_first + query * to.out.row + lane % 4 * 2;
#pragma unroll
            for (int n = 0; n < D / 8; ++n)
                if (n * 8 < a.dim) put_run<2>(row + n * 8, &o[n * 4 + r * 2], share, true);
        }
    }
}

#else
extern "C" __global__ void NAME() {}
#endif
