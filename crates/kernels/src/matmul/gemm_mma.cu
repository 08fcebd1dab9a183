// Matrix products in shared-memory tiles, on matrix units where available.
//
// T is the type of A and B, U of the result. LAYOUT: 0 to 3 if each operand is contiguous in one dimension and aligned to 16 bytes (bit 0:
// A along m instead of k; bit 1: B along n instead of k), 4 for anything else. LARGE: large tiles occupy all multiprocessors; DEEP: enough
// shared memory for longer stages.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME gemm_f16_f16
#define T f16
#define U f16
#define LAYOUT 0
#define LARGE 0
#define DEEP 0
#endif

#include "common/tile.cuh"
#include "matmul/gemm.cuh"

// Rows of tiles scheduled together, so that shared operands stay in L2.
#define GROUP 8

#define A_T (LAYOUT == 1 || LAYOUT == 3)
#define B_T (LAYOUT == 2 || LAYOUT == 3)

// BM × BN is the tile of a block, WM × WN that of a wave; BK of k are copied per stage. The launcher has the same values. AMD has 64 KiB of
// shared memory and copies synchronously; on NVIDIA registers are the limit.
#if defined(__AMDGCN__)
constexpr int BM = LARGE ? 128 : 64, BN = BM, WM = BM / 2, WN = BM / 2, STAGES = 2, BK_BYTES = 64;
#else
constexpr int BM = LARGE ? 128 : 64, BN = LARGE && sizeof(T) < 4 ? 256 : BM, WM = BM / 2, WN = BN / 4 > 32 ? 64 : 32;
constexpr int STAGES = DEEP ? 3 : 4, BK_BYTES = LARGE && !DEEP ? 64 : 128;
#endif
constexpr int BK = BK_BYTES / sizeof(T), THREADS = (BM / WM) * (BN / WN) * WAVE;

// Forces values to be recomputed after this point instead of kept in registers, which are scarce on NVIDIA.
#if defined(__AMDGCN__)
#define RECOMPUTE(KIND, VALUE)
#else
#define RECOMPUTE(KIND, VALUE) asm volatile("" : "+" KIND(VALUE))
#endif

template <class E> struct SumOf { typedef f32 Type; };
template <> struct SumOf<i8> { typedef i32 Type; };
typedef SumOf<T>::Type Sum;

// Copies tiles of 16-byte chunks to shared memory, zero-filled beyond the edges.
template <int ROWS, int COLUMNS> struct TileLoader {
    typedef Swizzled<T, COLUMNS> At;
    static constexpr int EACH = 16 / sizeof(T), ACROSS = COLUMNS / EACH, APART = THREADS / ACROSS, CHUNKS = ROWS / APART;
    static_assert(THREADS % ACROSS == 0 && ROWS % APART == 0, "each thread copies as many pieces, of one column");
    const T *at;

    static __device__ int row() { return threadIdx.x / ACROSS; }
    static __device__ int column() { return threadIdx.x % ACROSS * EACH; }
    __device__ TileLoader(const T *from, u64 stride) : at(from + row() * stride + column()) {}
    // `rows` and `columns` are what remains up to the edge.
    __device__ void copy(T *to, u64 stride, int rows, int columns) const {
        const int left = columns - column(), bytes = left >= EACH ? 16 : left > 0 ? left * (int)sizeof(T) : 0;
        u64 apart = APART * stride;
        RECOMPUTE("l", apart);
        const T *from = at;
#pragma unroll
        for (int i = 0; i < CHUNKS; ++i) {
            copy_async16(to + At::offset(row() + i * APART, column()), from, row() + i * APART < rows ? bytes : 0);
            from += apart;
        }
    }
};

// The same element by element, for any strides.
template <int ROWS, int COLUMNS> __device__ inline void load_tile_generic(T *to, const T *from, const u64 *strides, int rows, int columns) {
    typedef Swizzled<T, COLUMNS> At;
    // Coalesce: adjacent lanes read adjacent memory.
    const bool by_row = strides[0] < strides[1];
#pragma unroll 1
    for (int at = threadIdx.x; at < ROWS * COLUMNS; at += THREADS) {
        const int row = by_row ? at % ROWS : at / COLUMNS, column = by_row ? at / ROWS : at % COLUMNS;
        T element = T();
        if (row < rows && column < columns) element = from[row * strides[0] + column * strides[1]];
        to[At::offset(row, column)] = element;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) NAME(U *out, const T *a, const T *b, const U *bias, const __grid_constant__ Gemm p) {
    constexpr int STEP = TileA<T>::K, STEPS = BK / STEP, MI = WM / 16, NI = WN / 16, A_SIZE = BM * BK, B_SIZE = BN * BK;
    typedef Swizzled<T, A_T ? BM : BK> AtA;
    typedef Swizzled<T, B_T ? BN : BK> AtB;
    extern __shared__ uint4 smem[];
    T *shared_a = (T *)smem, *shared_b = shared_a + STAGES * A_SIZE;

    // Tiles in groups of rows, column by column within a group.
    const u32 group = blockIdx.x / (GROUP * p.tiles[1]), rows = min((u32)GROUP, p.tiles[0] - group * GROUP);
    const u32 within = blockIdx.x - group * GROUP * p.tiles[1];
    u32 tile_m = group * GROUP + within % rows, tile_n = within / rows;
    const int wave = threadIdx.x / WAVE, wave_m = wave / (BN / WN) * WM, wave_n = wave % (BN / WN) * WN;

    const u32 tiles = (u32)((p.k + BK - 1) / BK);
    for (u64 batch = blockIdx.y; batch < p.batches; batch += gridDim.y) {
        const T *from_a = a + batch_offset(p, 0, batch) + (u64)tile_m * BM * p.a[0];
        const T *from_b = b + batch_offset(p, 1, batch) + (u64)tile_n * BN * p.b[1];
        const int left_m = (int)min((u64)BM, p.m - (u64)tile_m * BM), left_n = (int)min((u64)BN, p.n - (u64)tile_n * BN);
        u32 next = 0, slot = 0;
#if LAYOUT != 4
        TileLoader<A_T ? BK : BM, A_T ? BM : BK> loader_a(from_a, p.a[A_T]);
        TileLoader<B_T ? BK : BN, B_T ? BN : BK> loader_b(from_b, p.b[!B_T]);
#endif
        // Copies the next tile, if there is one, to the next stage.
        const auto fetch = [&] {
            if (next < tiles) {
                const int left_k = (int)min((u64)BK, p.k - (u64)next * BK);
                T *to_a = shared_a + slot * A_SIZE, *to_b = shared_b + slot * B_SIZE;
#if LAYOUT == 4
                const u64 transposed[2] = {p.b[1], p.b[0]};
                load_tile_generic<BM, BK>(to_a, from_a, p.a, left_m, left_k);
                load_tile_generic<BN, BK>(to_b, from_b, transposed, left_n, left_k);
                from_a += BK * p.a[1];
                from_b += BK * p.b[0];
#else
                loader_a.copy(to_a, p.a[A_T], A_T ? left_k : left_m, A_T ? left_m : left_k);
                loader_b.copy(to_b, p.b[!B_T], B_T ? left_k : left_n, B_T ? left_n : left_k);
                loader_a.at += A_T ? BK * p.a[1] : BK;
                loader_b.at += B_T ? BK * p.b[0] : BK;
#endif
                next += 1;
                slot = slot + 1 == STAGES ? 0 : slot + 1;
            }
            commit_copies();
        };

        // A is double-buffered in registers; each B operand is replaced as soon as it was used.
        TileA<T> tile_a[2][MI];
        TileB<T> tile_b[NI];
        TileSum<Sum> sums[MI][NI];
#pragma unroll
        for (int i = 0; i < MI * NI; ++i) sums[i / NI][i % NI].clear();
        const auto load_a_of = [&](int slot, int step, int into) {
            const AtA at{shared_a + slot * A_SIZE};
#pragma unroll
            for (int i = 0; i < MI; ++i) {
                if (A_T) load_a_t(tile_a[into][i], from(at, step * STEP, wave_m + i * 16));
                else load_a(tile_a[into][i], from(at, wave_m + i * 16, step * STEP));
            }
        };
        const auto load_b_of = [&](int slot, int step, int j) {
            const AtB at{shared_b + slot * B_SIZE};
            if (B_T) load_b(tile_b[j], from(at, step * STEP, wave_n + j * 16));
            else load_b_t(tile_b[j], from(at, wave_n + j * 16, step * STEP));
        };

#pragma unroll 1
        for (int tile = 0; tile < STAGES - 1; ++tile) fetch();
        wait_copies<STAGES - 2>();
        __syncthreads();
        load_a_of(0, 0, 0);
#pragma unroll
        for (int j = 0; j < NI; ++j) load_b_of(0, 0, j);
        int reading = 0;
        for (u32 tile = 0; tile < tiles; ++tile) {
#pragma unroll
            for (int step = 0; step < STEPS; ++step) {
                if (step == STEPS - 1) {
                    // The next tile has arrived, and nobody reads this one any more.
                    wait_copies<STAGES - 2>();
                    __syncthreads();
                    reading = reading + 1 == STAGES ? 0 : reading + 1;
                }
                load_a_of(reading, (step + 1) % STEPS, (step + 1) % 2);
                if (step == 0) fetch();
#pragma unroll
                for (int j = 0; j < NI; ++j) {
#pragma unroll
                    for (int i = 0; i < MI; ++i) mma(sums[i][j], tile_a[step % 2][i], tile_b[j]);
                    load_b_of(reading, (step + 1) % STEPS, j);
                }
            }
        }

        // Accumulators go through shared memory, 16 rows per wave at a time, so that results are stored in order and the epilogue is
        // instantiated once.
        constexpr int STRIDE = WN + 8, VEC = 16 / sizeof(U), LANES = WAVE;
        static_assert((BM / WM) * (BN / WN) * 16 * STRIDE * sizeof(Sum) <= STAGES * (A_SIZE + B_SIZE) * sizeof(T), "the sums' smem");
        const Gemm &q = reload_params(p);
        RECOMPUTE("r", tile_m);
        RECOMPUTE("r", tile_n);
        const u64 m0 = (u64)tile_m * BM, n0 = (u64)tile_n * BN;
        Sum *staging = (Sum *)smem + wave * 16 * STRIDE;
        U *to = out + batch_offset(q, 2, batch) + (n0 + wave_n) * q.c[1];
        const U *add = bias + (q.has_bias ? batch_offset(q, 3, batch) + (n0 + wave_n) * q.bias[1] : 0);
        const bool plain = q.alpha == 1 && q.beta == 0 && !q.has_bias && q.activation == 0;
        const bool vectors = q.c[1] == 1 && (q.c[0] % VEC | (u64)to % 16) == 0;
        const int lane = lane_id();
        wait_copies<0>();
        __syncthreads();
#pragma unroll 1
        for (int pass = 0; pass < MI; ++pass) {
#pragma unroll
            for (int i = 0; i < MI; ++i) {
                if (i != pass) continue;
#pragma unroll
                for (int e = 0; e < NI * TileSum<Sum>::N; ++e) {
                    const int j = e / TileSum<Sum>::N, x = e % TileSum<Sum>::N;
                    staging[TileSum<Sum>::row(x) * STRIDE + j * 16 + TileSum<Sum>::column(x)] = sums[i][j].at[x];
                }
            }
            __syncthreads();
            const u64 m1 = m0 + wave_m + pass * 16;
            const int height = (int)min((i64)16, max((i64)0, (i64)(q.m - m1))), width = (int)min((i64)WN, max((i64)0, (i64)(q.n - n0 - wave_n)));
            if (!plain) {
#pragma unroll 1
                for (int at = lane; at < 16 * WN; at += LANES) {
                    const int row = at / WN, column = at % WN;
                    if (row >= height || column >= width) continue;
                    Sum &sum = staging[row * STRIDE + column];
                    sum = epilogue<U, Sum>(q, sum, to + (m1 + row) * q.c[0] + column * q.c[1], add + (m1 + row) * q.bias[0] + column * q.bias[1]);
                }
                __syncthreads();
            }
#pragma unroll 1
            for (int at = lane; at < 16 * (WN / VEC); at += LANES) {
                const int row = at / (WN / VEC), column = at % (WN / VEC) * VEC;
                if (row >= height || column >= width) continue;
                const Sum *from = staging + row * STRIDE + column;
                U *place = to + (m1 + row) * q.c[0] + column * q.c[1];
                if (vectors && column + VEC <= width) {
                    union { uint4 raw; U each[VEC]; } packed;
#pragma unroll
                    for (int e = 0; e < VEC; ++e) packed.each[e] = Narrow<U>::from(from[e]);
                    *(uint4 *)place = packed.raw;
                } else {
#pragma unroll 1
                    for (int e = 0; e < min(VEC, width - column); ++e) place[e * q.c[1]] = Narrow<U>::from(from[e]);
                }
            }
            __syncthreads();
        }
    }
}
