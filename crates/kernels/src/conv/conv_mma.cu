// Convolution of f16 and bf16 as an implicit matrix product in shared-memory tiles, on matrix units where available.
//
// Weights are packed: a filter's taps with their channels innermost are adjacent, and filters begin at multiples of 16 bytes. FAST: the
// input is NHWC, with channels of a group in multiples of 16 bytes and aligned, so that a tap is copied in whole chunks; otherwise its
// elements are gathered one by one. LARGE and DEEP are those of gemm_mma.cu, as are the tiles.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME conv_mma_f16
#define T f16
#define TRANSPOSED 0
#define FAST 1
#define LARGE 0
#define DEEP 0
#endif

#include "common/tile.cuh"
#include "conv/conv.cuh"

// Rows of tiles scheduled together, so that shared operands stay in L2.
#define GROUP 8

#if defined(__AMDGCN__)
constexpr int BM = LARGE ? 128 : 64, BN = BM, WM = BM / 2, WN = BM / 2, STAGES = 2, BK_BYTES = 64;
#else
constexpr int BM = LARGE ? 128 : 64, BN = LARGE ? 256 : BM, WM = BM / 2, WN = BN / 4 > 32 ? 64 : 32;
constexpr int STAGES = DEEP ? 3 : 4, BK_BYTES = LARGE && !DEEP ? 64 : 128;
#endif
constexpr int BK = BK_BYTES / sizeof(T), THREADS = (BM / WM) * (BN / WN) * WAVE;
constexpr int EACH = 16 / sizeof(T), ACROSS = BK / EACH, APART = THREADS / ACROSS;
typedef Swizzled<T, BK> At;

__device__ inline int chunk_row() { return threadIdx.x / ACROSS; }
__device__ inline int chunk_column() { return threadIdx.x % ACROSS * EACH; }

#if FAST
// Copies the taps of BM pixels; a thread has one chunk of k in every APART-th row.
struct InputLoader {
    static constexpr int CHUNKS = BM / APART;
    static_assert(THREADS % ACROSS == 0 && BM % APART == 0, "each thread copies as many chunks, of one column");
    Pixel pixels[CHUNKS];
    // The thread's position along k.
    u32 c;
    i32 r, s;

    __device__ InputLoader(const Conv &p, const T *, u32 m0) : c(chunk_column()), r(0), s(0) {
#pragma unroll
        for (int i = 0; i < CHUNKS; ++i) pixels[i] = pixel_of(p, m0 + chunk_row() + i * APART);
        normalize(p);
    }
    __device__ void normalize(const Conv &p) {
        while (c >= p.channels) {
            c -= p.channels;
            if (++s == p.kernel[1]) {
                s = 0;
                ++r;
            }
        }
    }
    __device__ void copy(const Conv &p, const T *x, T *to, u32) {
#pragma unroll
        for (int i = 0; i < CHUNKS; ++i) {
            const i64 at = r < p.kernel[0] ? tap_offset(p, pixels[i], r, s) : -1;
            copy_async16(to + At::offset(chunk_row() + i * APART, chunk_column()), at >= 0 ? x + at + c : x, at >= 0 ? 16 : 0);
        }
        c += BK;
        normalize(p);
    }
};
#else
// Gathers elements; a thread's pixel or its position along k is the same for all of them.
struct InputLoader {
    Pixel *pixels;
    bool by_k;

    __device__ InputLoader(const Conv &p, const T *, u32 m0) : by_k(p.x[1] < p.x[3]) {
        __shared__ Pixel shared_pixels[BM];
        pixels = shared_pixels;
        for (int i = threadIdx.x; i < BM; i += THREADS) pixels[i] = pixel_of(p, m0 + i);
        __syncthreads();
    }
    __device__ void copy(const Conv &p, const T *x, T *to, u32 k0) {
#pragma unroll 1
        for (int at = threadIdx.x; at < BM * BK; at += THREADS) {
            // Coalesce: adjacent lanes read adjacent channels, or adjacent pixels.
            const int row = by_k ? at / BK : at % BM, column = by_k ? at % BK : at / BM;
            T element = T();
            if (k0 + column < p.k) element = input_element(p, x, pixels[row], k0 + column);
            to[At::offset(row, column)] = element;
        }
    }
};
#endif

extern "C" __global__ void __launch_bounds__(THREADS, 1) NAME(T *out, const T *x, const T *w, const T *bias, const __grid_constant__ Conv p) {
    constexpr int STEP = TileA<T>::K, STEPS = BK / STEP, MI = WM / 16, NI = WN / 16, A_SIZE = BM * BK, B_SIZE = BN * BK;
    extern __shared__ uint4 smem[];
    T *shared_a = (T *)smem, *shared_b = shared_a + STAGES * A_SIZE;

    // Tiles in groups of rows, column by column within a group.
    const u32 band = blockIdx.x / (GROUP * p.tiles[1]), rows = min((u32)GROUP, p.tiles[0] - band * GROUP);
    const u32 within = blockIdx.x - band * GROUP * p.tiles[1], group = blockIdx.y;
    const u32 m0 = (band * GROUP + within % rows) * BM, n0 = within / rows * BN;
    const int wave = threadIdx.x / WAVE, wave_m = wave / (BN / WN) * WM, wave_n = wave % (BN / WN) * WN;
    x += (u64)group * p.channels * p.x[1];
    w += group * p.w_group + n0 * p.w[0];
    const int left_n = (int)min((u32)BN, p.filters - n0);

    InputLoader input(p, x, m0);
    const u32 tiles = (p.k + BK - 1) / BK;
    u32 next = 0, slot = 0;
    // Copies the next tile, if there is one, to the next stage.
    const auto fetch = [&] {
        if (next < tiles) {
            input.copy(p, x, shared_a + slot * A_SIZE, next * BK);
            const int left = (int)(p.k - next * BK) - chunk_column(), bytes = left >= EACH ? 16 : left > 0 ? left * (int)sizeof(T) : 0;
            T *const to = shared_b + slot * B_SIZE;
#pragma unroll
            for (int i = 0; i < BN / APART; ++i) {
                const int row = chunk_row() + i * APART;
                const bool inside = row < left_n && bytes > 0;
                copy_async16(to + At::offset(row, chunk_column()), inside ? w + row * p.w[0] + next * BK + chunk_column() : w, inside ? bytes : 0);
            }
            next += 1;
            slot = slot + 1 == STAGES ? 0 : slot + 1;
        }
        commit_copies();
    };

    // A is double-buffered in registers; each B operand is replaced as soon as it was used.
    TileA<T> tile_a[2][MI];
    TileB<T> tile_b[NI];
    TileC sums[MI][NI];
#pragma unroll
    for (int i = 0; i < MI * NI; ++i) sums[i / NI][i % NI].clear();
    const auto load_a_of = [&](int slot, int step, int into) {
        const At at{shared_a + slot * A_SIZE};
#pragma unroll
        for (int i = 0; i < MI; ++i) load_a(tile_a[into][i], from(at, wave_m + i * 16, step * STEP));
    };
    const auto load_b_of = [&](int slot, int step, int j) {
        const At at{shared_b + slot * B_SIZE};
        load_b_t(tile_b[j], from(at, wave_n + j * 16, step * STEP));
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

    // Accumulators go through shared memory, 16 rows per wave at a time, so that results are stored in order.
    constexpr int STRIDE = WN + 8, VEC = 16 / sizeof(T);
    static_assert((BM / WM) * (BN / WN) * 16 * STRIDE * sizeof(f32) <= STAGES * (A_SIZE + B_SIZE) * sizeof(T), "the sums' smem");
    f32 *const staging = (f32 *)smem + wave * 16 * STRIDE;
    const u64 channel0 = (u64)group * p.filters + n0 + wave_n;
    T *const to = out + channel0 * p.out[1];
    const T *const add = p.has_bias ? bias + channel0 * p.bias : bias;
    const bool nhwc = p.out[1] == 1, vectors = nhwc && ((p.out[0] | p.out[2] | p.out[3]) % VEC | (u64)to % 16) == 0;
    const int lane = lane_id(), width = min(WN, (int)p.filters - (int)n0 - wave_n);
    wait_copies<0>();
    __syncthreads();
#pragma unroll 1
    for (int pass = 0; pass < MI; ++pass) {
#pragma unroll
        for (int i = 0; i < MI; ++i) {
            if (i != pass) continue;
#pragma unroll
            for (int e = 0; e < NI * TileC::N; ++e) {
                const int j = e / TileC::N, at = e % TileC::N;
                staging[TileC::row(at) * STRIDE + j * 16 + TileC::column(at)] = sums[i][j].at[at];
            }
        }
        __syncthreads();
        const u32 m1 = m0 + wave_m + pass * 16;
        if (vectors) {
#pragma unroll 1
            for (int at = lane; at < 16 * (WN / VEC); at += WAVE) {
                const int row = at / (WN / VEC), column = at % (WN / VEC) * VEC;
                if (m1 + row >= p.pixels || column >= width) continue;
                f32 *const sum = staging + row * STRIDE + column;
                T *const place = to + result_offset(p, m1 + row) + column;
                const int count = min(VEC, width - column);
                // In place, so that the epilogue is instantiated once.
#pragma unroll 1
                for (int e = 0; e < count; ++e) sum[e] = finish(p, sum[e], p.has_bias ? widen(add[(column + e) * p.bias]) : 0.0f);
                if (count == VEC) {
                    union { uint4 raw; T each[VEC]; } packed;
#pragma unroll
                    for (int e = 0; e < VEC; ++e) packed.each[e] = Narrow<T>::from(sum[e]);
                    *(uint4 *)place = packed.raw;
                } else {
#pragma unroll 1
                    for (int e = 0; e < count; ++e) place[e] = Narrow<T>::from(sum[e]);
                }
            }
        } else {
#pragma unroll 1
            for (int at = lane; at < 16 * WN; at += WAVE) {
                // Adjacent lanes write adjacent memory: filters of a pixel, or pixels of a filter.
                const int row = nhwc ? at / WN : at % 16, column = nhwc ? at % WN : at / 16;
                if (m1 + row >= p.pixels || column >= width) continue;
                const f32 value = finish(p, staging[row * STRIDE + column], p.has_bias ? widen(add[column * p.bias]) : 0.0f);
                to[result_offset(p, m1 + row) + column * p.out[1]] = Narrow<T>::from(value);
            }
        }
        __syncthreads();
    }
}
