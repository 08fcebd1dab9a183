// Split-KV decode attention with f32 FMAs: any layout and head_dim, full f32 precision.
//
// LANES lanes share a key, a wave has several keys at a time; each lane has COUNT elements of each of ROWS rows. A lane copies its own part
// of keys and values to its own part of shared memory, STAGES - 1 keys ahead. VECTORS: keys and values can be read as 16-byte vectors.

// Defaults, so that this file compiles alone. The launcher defines them for each program.
#ifndef NAME
#define NAME decode_f32
#define T f32
#define U f32
#define DIM 64
#define PAGED 0
#define WAVES 4
#define ROWS 1
#define VECTORS 1
#define STAGES 2
#endif

#include "attention/decode.cuh"

#if !defined(__AMDGCN__) && __CUDA_ARCH__ >= 800
#define HAS_ASYNC_COPY
#endif
// Keys of a lane per tile.
#define AHEAD 1
#define COUNT (DIM > 256 ? 16 : 8)
// Elements of a copy. Those of quantized caches have one scale.
#if defined(CODES)
typedef uint2 Chunk;
#define EACH COUNT
#else
typedef uint4 Chunk;
#define EACH (VECTORS ? 16 / (int)sizeof(T) : 1)
#endif
#define LANES (DIM <= 32 ? 4 : DIM <= 64 ? 8 : DIM <= 128 ? 16 : 32)
#define KEYS_PER_WAVE (WAVE / LANES)
#define TILE (KEYS_PER_WAVE * AHEAD)

// Copies a chunk to shared memory, or zeros; complete after `wait`, except for the last PENDING rounds.
__device__ inline void copy_chunk(Chunk *to, const Cached *from, bool there) {
#if defined(HAS_ASYNC_COPY)
    const u32 at = (u32)__cvta_generic_to_shared(to);
#if defined(CODES)
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(at), "l"(from), "r"(there ? 8 : 0) : "memory");
#else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(there ? 16 : 0) : "memory");
#endif
#else
    *to = there ? *(const Chunk *)from : Chunk{};
#endif
}
__device__ inline void commit_round() {
#if defined(HAS_ASYNC_COPY)
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int PENDING> __device__ inline void wait() {
#if defined(HAS_ASYNC_COPY)
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#endif
}

// The column of a lane's element: vectors of all lanes are adjacent.
__device__ inline int column_of(int lane, int i) { return (i / EACH * LANES + lane) * EACH + i % EACH; }

// A lane's buffer: those of a wave are interleaved.
#define EACH_CHUNK ((int)(sizeof(Chunk) / sizeof(Cached)))
#define PACKS (COUNT / EACH_CHUNK)
struct LaneBuffer {
    Chunk *base;
    __device__ Chunk *pack(int i) const { return base + i * WAVE; }
    __device__ Cached &at(int i) const { return ((Cached *)pack(i / EACH_CHUNK))[i % EACH_CHUNK]; }

    __device__ void fetch(const Cached *from, i32 step, int lane, bool there) const {
#if VECTORS
#pragma unroll
        for (int i = 0; i < COUNT; i += EACH) {
            const int column = column_of(lane, i);
            const bool exists = there && (DIM % (LANES * COUNT) == 0 || column < DIM);
            copy_chunk(pack(i / EACH), exists ? from + column : from, exists);
        }
#else
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const int column = column_of(lane, i);
            at(i) = there && column < DIM ? from[(i64)column * step] : Cached{};
        }
#endif
    }
};

struct alignas(16) Row {
    i32 position, first, end;
    f32 slope;
#if TREE
    u64 drafts;
#endif
};

extern "C" __global__ void __launch_bounds__(WAVES *WAVE) KERNEL_NAME(NAME, _split)(DECODE_PARAMETERS, Decode d DECODE_SCALES) {
    extern __shared__ Chunk shared[];
    pdl_sync();
    const KvSplit part(d, lengths, ROWS, TILE, WAVES);
    const int lane = threadIdx.x % LANES, which = (threadIdx.x % WAVE) / LANES, wave = threadIdx.x / WAVE;
    // The buffer of a stage and key; `value` selects the value.
    auto position = [&](int stage, int a, int value) {
        return LaneBuffer{shared + (((wave * STAGES + stage) * AHEAD + a) * 2 + value) * PACKS * WAVE + (threadIdx.x % WAVE)};
    };
    // Queries first: they do not depend on the block table.
    f32 query[ROWS][COUNT], result[ROWS][COUNT], largest[ROWS], sum[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const int row = r < part.rows ? r : 0;
        const T *from = q + d.q.at(part.sequence, part.token(d, row), part.head(d, row));
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const int column = column_of(lane, i);
            query[r][i] = column < DIM ? widen(from[(i64)column * d.q.element]) : 0;
            result[r][i] = 0;
        }
        largest[r] = MASKED, sum[r] = 0;
    }
    // Where the keys of a tile are; looked up one round before their copies start.
    struct Where {
        i32 block[AHEAD], within[AHEAD];
    };
    i32 coming = part.begin + wave;
    auto look = [&](Where &where) {
#pragma unroll
        for (int a = 0; a < AHEAD; ++a) {
            const i32 key = coming * TILE + a * KEYS_PER_WAVE + which;
            where.within[a] = 0;
            where.block[a] = coming < part.end && key < part.len ? block_of(d, table, part.sequence, key, where.within[a]) : -1;
        }
        coming += part.step;
    };
    // Bit mask of keys that exist.
    u32 found = 0;
#if defined(CODES)
    // Scales of the keys and values that a lane is to compute on, and of those on their way.
    static_assert(STAGES == 2, "a lane has the scales of two stages");
    f16 ready[AHEAD][2], loading[AHEAD][2];
#endif
    auto fetch = [&](int stage, const Where &where) {
#pragma unroll
        for (int a = 0; a < AHEAD; ++a) {
            const bool there = where.block[a] >= 0;
            const i32 first = there ? where.block[a] : 0;
            position(stage, a, 0).fetch(k + d.k.at(first, where.within[a], part.kv_head), d.k.element, lane, there);
            position(stage, a, 1).fetch(v + d.v.at(first, where.within[a], part.kv_head), d.v.element, lane, there);
#if defined(CODES)
            const bool scaled = there && (DIM % (LANES * COUNT) == 0 || lane * COUNT < DIM);
            loading[a][0] = scaled ? k_scales[scales.k.at(first, where.within[a], part.kv_head) + group_of(lane * COUNT)] : f16{0};
            loading[a][1] = scaled ? v_scales[scales.v.at(first, where.within[a], part.kv_head) + group_of(lane * COUNT)] : f16{0};
#endif
            const u32 bit = 1u << (stage * AHEAD + a);
            found = there ? found | bit : found & ~bit;
        }
        commit_round();
    };
    Where next[STAGES];
#pragma unroll
    for (int stage = 0; stage < STAGES; ++stage) look(next[stage]);
#pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage) fetch(stage, next[stage]);

    // The same for all threads; in registers it would take many of AMD's scalar registers.
    __shared__ Row rows[ROWS];
    if (threadIdx.x < ROWS) {
        const int row = threadIdx.x < part.rows ? threadIdx.x : 0;
        const KeyRange range(d, part.len, part.token(d, row));
        rows[threadIdx.x] = Row{range.position, range.first, range.end, part.slope(d, slopes, row)};
#if TREE
        rows[threadIdx.x].drafts = part.drafts(d, tree, row);
#endif
    }
    __syncthreads();
    int stage = 0;
    for (i32 tile = part.begin + wave; tile < part.end; tile += part.step) {
        wait<STAGES - 2>();
#if defined(CODES)
#pragma unroll
        for (int a = 0; a < AHEAD; ++a) ready[a][0] = loading[a][0], ready[a][1] = loading[a][1];
#endif
        fetch(stage == 0 ? STAGES - 1 : stage - 1, next[STAGES - 1]);
        look(next[STAGES - 1]);
        f32 x[ROWS][AHEAD];
#pragma unroll
        for (int a = 0; a < AHEAD; ++a) {
            const LaneBuffer keys = position(stage, a, 0);
#pragma unroll
            for (int r = 0; r < ROWS; ++r) x[r][a] = 0;
#pragma unroll
            for (int i = 0; i < COUNT; ++i) {
                const f32 element = widen(keys.at(i));
#pragma unroll
                for (int r = 0; r < ROWS; ++r) x[r][a] += query[r][i] * element;
            }
#if defined(CODES)
#pragma unroll
            for (int r = 0; r < ROWS; ++r) x[r][a] *= widen(ready[a][0]);
#endif
        }
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const Row row = rows[r];
            f32 most = largest[r];
#pragma unroll
            for (int a = 0; a < AHEAD; ++a) {
#pragma unroll
                for (int apart = LANES / 2; apart > 0; apart /= 2) x[r][a] += __shfl_xor_sync(0xffffffffu, x[r][a], apart);
                const i32 key = tile * TILE + a * KEYS_PER_WAVE + which;
                bool seen = key >= row.first && key < row.end;
#if TREE
                const i32 draft = first_draft(d, part.len);
                if (key >= draft) seen = sees_draft(row.drafts, key - draft);
#endif
                seen = seen && (found >> (stage * AHEAD + a) & 1);
                x[r][a] = seen ? score(d, x[r][a], row.slope, row.position - key) : MASKED;
                most = fmaxf(most, x[r][a]);
            }
            // After the first keys the maximum rarely changes.
            if (__any_sync(0xffffffffu, most != largest[r])) {
                const f32 factor = exp2_relative(largest[r], most);
                largest[r] = most;
                sum[r] *= factor;
#pragma unroll
                for (int i = 0; i < COUNT; ++i) result[r][i] *= factor;
            }
#pragma unroll
            for (int a = 0; a < AHEAD; ++a) {
                x[r][a] = exp2_relative(x[r][a], most);
                sum[r] += x[r][a];
            }
        }
#pragma unroll
        for (int a = 0; a < AHEAD; ++a) {
            const LaneBuffer values = position(stage, a, 1);
#if defined(CODES)
#pragma unroll
            for (int r = 0; r < ROWS; ++r) x[r][a] *= widen(ready[a][1]);
#endif
#pragma unroll
            for (int i = 0; i < COUNT; ++i) {
                const f32 element = widen(values.at(i));
#pragma unroll
                for (int r = 0; r < ROWS; ++r) result[r][i] += x[r][a] * element;
            }
        }
        stage = stage + 1 == STAGES ? 0 : stage + 1;
    }
    wait<0>();
    __syncthreads();

    // Combine the lanes with other keys, then the other waves.
    __shared__ f32 wave_largest[WAVES][ROWS], wave_sum[WAVES][ROWS];
    f32 *results = (f32 *)shared;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        f32 most = largest[r];
#pragma unroll
        for (int apart = LANES; apart < WAVE; apart *= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, apart));
        const f32 factor = exp2_relative(largest[r], most);
        sum[r] *= factor;
#pragma unroll
        for (int apart = LANES; apart < WAVE; apart *= 2) sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], apart);
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            f32 value = result[r][i] * factor;
#pragma unroll
            for (int apart = LANES; apart < WAVE; apart *= 2) value += __shfl_xor_sync(0xffffffffu, value, apart);
            if (which == 0) results[(wave * ROWS + r) * LANES * COUNT + column_of(lane, i)] = value;
        }
        if ((threadIdx.x % WAVE) == 0) wave_largest[wave][r] = most, wave_sum[wave][r] = sum[r];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < part.rows * DIM; i += blockDim.x) {
        const int row = i / DIM, column = i % DIM;
        const f32 sink = d.splits == 1 ? sink_of(d, sinks, part.head(d, row)) : MASKED;
        f32 most = sink, value = 0;
        for (int w = 0; w < WAVES; ++w) most = fmaxf(most, wave_largest[w][row]);
        f32 total = exp2_relative(sink, most);
        for (int w = 0; w < WAVES; ++w) {
            const f32 factor = exp2_relative(wave_largest[w][row], most);
            total += wave_sum[w][row] * factor;
            value += results[(w * ROWS + row) * LANES * COUNT + column] * factor;
        }
        store_result(d, DECODE_OPERANDS, part, row, column, total == 0 ? 0 : value / total, total == 0 ? MASKED : most + log2f(total));
    }
}
