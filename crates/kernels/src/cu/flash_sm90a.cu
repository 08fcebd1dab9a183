// Attention on Hopper's matrix units, which four waves use together and which read shared memory themselves: NVIDIA sm_90a alone.
//
// The first four waves fetch keys and values, two waves each, STAGES blocks ahead; the others are GROUPS times four waves with 64 queries each. A
// group's next scores are computed while its last values are summed up, and the softmax between them runs beside the sums; two groups
// take turns at starting products, so that one's softmax runs beside the other's products too. A block does every gridDim-th piece of work: its
// next keys are on the way while its last results are written.

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

#define BM (64 * GROUPS)
#define THREADS (128 * (GROUPS + 1))
// Bytes between panels of a tile.
#define PANEL(ROWS) ((ROWS) * 128)
#define WIDE ((D + 63) / 64 * 64)

// Registers of the waves that fetch, and of those that compute; 512 for four waves each.
#define FEW (D > 128 && D < 224 ? 72 : 56)
#define MANY ((512 - FEW) / GROUPS / 8 * 8)

__device__ inline u32 shared_place(const void *at) { return (u32)__cvta_generic_to_shared(at); }

// Barriers in shared memory: so many arrivals end a phase; whoever waits says which, odd or even.
struct Barrier {
    u32 at;
    // The same of another stage.
    __device__ Barrier of(int stage) const { return Barrier{at + stage * 16}; }
    __device__ void init(u32 arrivals) const { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(arrivals) : "memory"); }
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
#define R48(c, i) R32(c, i), R16(c, i + 32)
#define R64(c, i) R32(c, i), R32(c, i + 32)
#define N16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define N32 N16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define N48 N32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define N64 N48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

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
    SCORES(T, NAME, 96, R48, N48, "%48", "%49", "%50")                                                                             \
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

// The stage whose turn it is, and the phase of its barriers.
struct Turn {
    int stage;
    u32 phase;
    __device__ void next() {
        if (++stage == STAGES) stage = 0, phase ^= 1;
    }
};

// Fetches all keys, or all values, of this block's work.
__device__ __forceinline__ void produce(const T *data, const Steps &steps, T *tiles, Barrier full, Barrier empty, const Attention &a, const Tables &tables) {
    // Of stages that nobody used yet, the phase before the first is over.
    Turn turn = {0, 1};
#pragma unroll 1
    for (u32 piece = blockIdx.x; piece < (u32)a.tiles * a.pairs; piece += gridDim.x) {
        const Work<BM, BN> work(a, tables, piece);
        if (work.idle()) continue;
        const Rows<T> rows(data, steps, a, tables, work);
#pragma unroll 1
        for (i32 block = work.begin; block < work.end; ++block, turn.next()) {
            empty.of(turn.stage).wait(turn.phase);
            fetch<D, BN, 64, ANY>(tiles + turn.stage * BN * WIDE, rows, block * BN, work.kv_len, a, threadIdx.x % 64);
            wait_all_copies();
            publish();
            full.of(turn.stage).arrive();
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    NAME(const T *q, const T *k, const T *v, const f32 *slopes, const i32 *q_starts, const i32 *kv_starts, const i32 *kv_lengths, const i32 *pages,
         const __grid_constant__ Attention a, T *out, f32 *lse) {
    extern __shared__ __align__(1024) u8 shared[];
    const Tables tables = {slopes, q_starts, kv_starts, kv_lengths, pages};
    const u32 pieces = (u32)a.tiles * a.pairs;

    // Tiles at multiples of 1024 bytes, then the barriers: of the keys and values of each stage, full and empty.
    T *const q_tiles = (T *)(shared + (0 - shared_place(shared)) % 1024), *const k_tiles = q_tiles + BM * WIDE, *const v_tiles = k_tiles + STAGES * BN * WIDE;
    const u32 tile = BN * WIDE * 2, barriers = shared_place(v_tiles + STAGES * BN * WIDE);
    auto full = [&](int which, int stage) { return Barrier{barriers + (which * STAGES + stage) * 16}; };
    auto empty = [&](int which, int stage) { return Barrier{barriers + (which * STAGES + stage) * 16 + 8}; };
    if (threadIdx.x < 2 * STAGES) {
        full(0, threadIdx.x).init(64);
        empty(0, threadIdx.x).init(GROUPS * 4);
    }
    __syncthreads();

    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(FEW));
        // Written out for each: their strides need no registers then.
        if (threadIdx.x < 64) produce(k, a.k, k_tiles, full(0, 0), empty(0, 0), a, tables);
        else produce(v, a.v, v_tiles, full(1, 0), empty(1, 0), a, tables);
        return;
    }

    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(MANY));
    const int group = threadIdx.x / 128 - 1, thread = threadIdx.x % 128, lane = thread % 32;
    T *const q_tile = q_tiles + group * 64 * WIDE;
    const u32 q_place = shared_place(q_tile), k_places = shared_place(k_tiles), v_places = shared_place(v_tiles);
    f32 o[D / 2], s[BN / 2], most[2], sum[4], less[2];
    u32 p[BN / 4];
    Turn k_turn = {0, 0}, v_turn = {0, 0};

    auto whole_group = [&]() { asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory"); };
    auto my_turn = [&]() {
        if (GROUPS == 2) asm volatile("bar.sync %0, 256;" ::"r"(4 + group) : "memory");
    };
    auto your_turn = [&]() {
        if (GROUPS == 2) asm volatile("bar.arrive %0, 256;" ::"r"(5 - group) : "memory");
    };
    auto release = [&](int which, int stage) {
        if (lane == 0) empty(which, stage).arrive();
    };
    auto start_scores = [&]() {
        begin();
#pragma unroll
        for (int d = 0; d < D / 16; ++d)
            score(T(), Width<BN>(), s, describe(q_place + d / 4 * PANEL(64) + d % 4 * 32, 16),
                  describe(k_places + k_turn.stage * tile + d / 4 * PANEL(BN) + d % 4 * 32, 16), d > 0);
        commit();
    };
    auto start_sums = [&]() {
        begin();
#pragma unroll
        for (int c = 0; c < BN / 16; ++c) sum_columns<0>(o, p + 4 * c, v_places + v_turn.stage * tile + c * 16 * 128);
        commit();
    };

    if (group == 1) your_turn();
#pragma unroll 1
    for (u32 piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
        const Work<BM, BN> work(a, tables, piece);
        if (work.idle()) continue;
        const i32 first = work.first + group * 64, query0 = first + thread / 32 * 16 + lane / 4;
        const Scores scores(a, tables, work.sequence, work.head);
        // Nobody of the group reads the last queries any more.
        whole_group();
        fetch<D, 64, 128, false>(q_tile, Rows<T>(q, a.q, work.sequence, work.head, work.q_start), first, work.q_len, a, thread);
        wait_all_copies();
        publish();
        whole_group();

        // Scores to powers; whether what was summed up so far must become `less`.
        auto soften = [&](i32 block) {
            const i32 key = block * BN + lane % 4 * 2;
            const Sight sight[2] = {work.sight(query0, key), work.sight(query0 + 8, key)};
            if (scores.cap > 0) each(s, sight, [&](f32 x, const Sight &, int) { return scores.capped(x); });
            else if (scores.bent) each(s, sight, [&](f32 x, const Sight &, int) { return scores.scaled(x); });
            if (scores.slope != 0) each(s, sight, [&](f32 x, const Sight &row, int key) { return scores.sloped(x, (f32)row.own - (f32)key); });
            if (work.masked(block)) each(s, sight, [&](f32 x, const Sight &row, int key) { return row.sees(key) ? x : -infinity(); });
            f32 high[4] = {s[0], s[1], s[2], s[3]};
#pragma unroll
            for (int i = 4; i < BN / 2; ++i) high[i % 4] = fmaxf(high[i % 4], s[i]);
            bool behind = false;
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                high[r] = fmaxf(high[2 * r], high[2 * r + 1]);
                high[r] = fmaxf(high[r], __shfl_xor_sync(0xffffffffu, high[r], 1));
                high[r] = fmaxf(high[r], __shfl_xor_sync(0xffffffffu, high[r], 2)) * scores.factor;
                behind |= high[r] > most[r] + SLACK;
            }
            behind = __any_sync(0xffffffffu, behind);
            if (behind) {
#pragma unroll
                for (int r = 0; r < 2; ++r) {
                    const f32 next = fmaxf(most[r], high[r]);
                    less[r] = next == -infinity() ? 1 : power_of_2(most[r] - next);
                    most[r] = next;
                    sum[2 * r] *= less[r], sum[2 * r + 1] *= less[r];
                }
            }
            const f32 base[2] = {most[0] == -infinity() ? 0 : -most[0], most[1] == -infinity() ? 0 : -most[1]};
#pragma unroll
            for (int i = 0; i < BN / 2; ++i) {
                s[i] = power_of_2(fmaf(s[i], scores.factor, base[i / 2 % 2]));
                sum[i % 4] += s[i];
            }
            return behind;
        };
        auto narrow = [&]() {
#pragma unroll
            for (int i = 0; i < BN / 4; ++i) p[i] = pair<T>(s[2 * i], s[2 * i + 1]);
        };

#pragma unroll
        for (int i = 0; i < D / 2; ++i) o[i] = 0;
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[i] = 0, most[i / 2] = -infinity();
        if (work.begin < work.end) {
            full(0, k_turn.stage).wait(k_turn.phase);
            start_scores();
            wait<0>();
            written(s);
            release(0, k_turn.stage);
            k_turn.next();
            soften(work.begin);
            narrow();
#pragma unroll 1
            for (i32 block = work.begin + 1; block < work.end; ++block) {
                full(0, k_turn.stage).wait(k_turn.phase);
                my_turn();
                start_scores();
                full(1, v_turn.stage).wait(v_turn.phase);
                start_sums();
                your_turn();
                wait<1>();
                written(s);
                release(0, k_turn.stage);
                k_turn.next();
                const bool behind = soften(block);
                wait<0>();
                written(o);
                release(1, v_turn.stage);
                v_turn.next();
                if (behind) {
#pragma unroll
                    for (int i = 0; i < D / 2; ++i) o[i] *= less[i / 2 % 2];
                }
                narrow();
            }
            full(1, v_turn.stage).wait(v_turn.phase);
            start_sums();
            wait<0>();
            written(o);
            release(1, v_turn.stage);
            v_turn.next();
        }

        const Results to = results(a);
        T *const out_first = out + work.sequence * to.out.sequence + work.head * to.out.head + work.q_start * to.out.row;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            f32 all = sum[2 * r] + sum[2 * r + 1];
            all += __shfl_xor_sync(0xffffffffu, all, 1);
            all += __shfl_xor_sync(0xffffffffu, all, 2);
            const f32 share = all == 0 ? 0 : 1 / all;
            const i32 query = query0 + r * 8;
            if (query >= work.q_len) continue;
            if (lse && lane % 4 == 0)
                lse[work.sequence * to.lse.sequence + work.head * to.lse.head + (work.q_start + query) * to.lse.row] = log_sum(most[r], all);
            T *const row = out_first + query * to.out.row + lane % 4 * 2;
#pragma unroll
            for (int n = 0; n < D / 8; ++n)
                if (n * 8 < a.dim) put_run<2>(row + n * 8, &o[n * 4 + r * 2], share, true);
        }
    }
    // The other group's last word.
    if (group == 0) my_turn();
}

#else
extern "C" __global__ void NAME() {}
#endif
