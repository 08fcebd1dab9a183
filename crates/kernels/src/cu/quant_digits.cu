// Products of quantised weights and few vectors on NVIDIA's matrix units: out[v] = W · x[v].
//
// 256 columns are a chunk. One vector is cut into digits: its part of a chunk is made whole numbers of 46 bits, their last bit being 2^-43
// of the largest or less, and each is six digits of a byte. The matrix unit multiplies 16 rows of codes by those digits, six columns of its
// eight; what it gives is exact, and becomes floats when it meets a scale. Of up to eight vectors of Q8_1 each is a column.
//
// A block of threads has 16 rows at a time, a tile; its waves share the columns, and add what they have after some tiles: none waits for
// the others often. Each copies its chunks to shared memory STAGES ahead.

#if !defined(__AMDGCN__) && __CUDA_ARCH__ >= 800

// Columns of the matrix unit, and bytes of a unit in them.
#define COLUMNS (VECTORS == 1 ? 6 : 8)
#define DIGITS (32 * COLUMNS)
// Tiles whose sums wait for the other waves'.
#define HELD (VECTORS == 1 ? 8 : 1)
// Sums that a lane has: of two rows one each, or of two vectors each.
#define OWN (VECTORS == 1 ? 2 : 4)

// Where things are in shared memory, in bytes.
struct Rooms {
    u8 *digits;
    // What a digit counts: of each chunk, or of each unit and vector. Of each unit the sum of x, or of each vector.
    f32 *counts, *sums;
    f32 *parts;
    u8 *ring;
};

// Where a word of x has its digits.
template <class F> __device__ inline u32 place(u32 word) {
    const u32 at = Way<F>::place(word);
    return at / 32 * DIGITS + at % 32;
}

// The digits of a chunk of x, made by a wave.
template <class F> __device__ inline void cut(const Rooms &rooms, const f32 (&values)[2][4], u32 chunk, int lane) {
    u32 most = 0;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const u32 size = __float_as_uint(values[j][i]) & 0x7fffffffu;
            most = size > most ? size : most;
        }
        if (F::MINIMUM && !F::BESIDE) {
            f32 sum = (values[j][0] + values[j][1]) + (values[j][2] + values[j][3]);
#pragma unroll
            for (int by = 1; by < 8; by *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, by);
            if (lane % 8 == 0) rooms.sums[chunk * UNITS + j * 4 + lane / 8] = sum;
        }
    }
#pragma unroll
    for (int by = 1; by < 32; by *= 2) {
        const u32 other = __shfl_xor_sync(0xffffffffu, most, by);
        most = other > most ? other : most;
    }
    // The largest is below 2^30 then. What has no exponent to spare stays smaller.
    const u32 exponent = most >> 23 > 30 ? most >> 23 : 30;
    const f32 up = __uint_as_float((283 - exponent) << 23);
    // What is no number makes all of them none.
    if (lane == 0) rooms.counts[chunk] = most >= 0x7f800000u ? __uint_as_float(0x7fffffffu) : __uint_as_float((exponent - 29) << 23);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
        u32 upper[4], lower[4], digits[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const f32 scaled = values[j][i] * up, whole = rintf(scaled);
            // Signed digits: what is above 127 is that less 256, and the next one more.
            upper[i] = ((u32)(i32)whole + 0x00808080u) ^ 0x00808080u;
            lower[i] = ((u32)(i32)rintf((scaled - whole) * 16384.0f) + 0x80u) ^ 0x80u;
        }
        u8 *to = rooms.digits + chunk * UNITS * DIGITS + place<F>(j * 32 + lane);
        turned(upper, digits);
#pragma unroll
        for (int k = 0; k < 4; ++k) *(u32 *)(to + 32 * k) = digits[3 - k];
        turned(lower, digits);
        *(u32 *)(to + 128) = digits[1];
        *(u32 *)(to + 160) = digits[0];
    }
}

// Q8_1's vectors beside each other, each wave its chunks of them; behind the last vector it is once more.
template <class F> __device__ inline void gather(const Rooms &rooms, const u8 *x, const Product &p, u32 chunks, u32 wave, int lane) {
#pragma unroll 1
    for (u32 chunk = wave; chunk < chunks; chunk += WAVES) {
        const u32 units = p.units - chunk * UNITS, there = units < UNITS ? units : UNITS;
        const u8 *from = x + (u64)chunk * UNITS * 36;
        u8 *to = rooms.digits + chunk * UNITS * DIGITS;
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const u32 word = j * 32 + lane;
            if (word >= there * 8) break;
            u32 codes[8];
#pragma unroll
            for (int v = 0; v < 8; ++v) {
                codes[v] = *(const u32 *)(from + (v < p.vectors ? v : p.vectors - 1) * p.x_row + word / 8 * 36 + 4 + word % 8 * 4);
            }
#pragma unroll
            for (int v = 0; v < 8; ++v) *(u32 *)(to + place<F>(word) + v * 32) = codes[v];
        }
        // Two blocks of each lane.
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const u32 unit = j * 4 + lane / 8, v = lane % 8, at = (chunk * UNITS + unit) * 8 + v;
            if (unit >= there) break;
            const u32 *block = (const u32 *)(from + (v < p.vectors ? v : p.vectors - 1) * p.x_row + unit * 36);
            const f16 d = {(u16)block[0]};
            rooms.counts[at] = widen(d);
            if (F::MINIMUM && !F::BESIDE) {
                i32 sum = 0;
#pragma unroll
                for (int i = 1; i < 9; ++i) sum = dot4(block[i], 0x01010101u, sum);
                rooms.sums[at] = widen(d) * (f32)sum;
            }
        }
    }
}

// A lane's sums within a chunk, with rows g and g + 8.
struct Digits {
    const u8 *digits;
    const f32 *sums;
    // What the lane's digits count.
    f32 count;
    int lane;
    f32 parts[2], least[2];
    i32 whole[2][2];

    __device__ inline Digits(const Rooms &rooms, u32 chunk, int lane) : lane(lane) {
        const int t = lane % 4;
        // Two of eight columns are there twice, and count nothing.
        digits = rooms.digits + chunk * UNITS * DIGITS + lane / 4 % COLUMNS * 32 + t * 8;
        sums = rooms.sums + chunk * UNITS;
        count = rooms.counts[chunk] * (t == 0 ? 65536.0f : t == 1 ? 1.0f : t == 2 ? 1.0f / 16384 : 0.0f);
#pragma unroll
        for (int r = 0; r < 2; ++r) parts[r] = least[r] = 0, whole[r][0] = whole[r][1] = 0;
    }
    // The lane's part of a unit of x.
    __device__ inline uint2 unit(int u) const { return *(const uint2 *)(digits + u * DIGITS); }
    // Adds products that have a scale, at unit u of x; or a scale that is a whole number; and what every weight of it has more.
    __device__ inline void add(int, int r, f32 d, const i32 (&c)[4]) { parts[r] = fmaf(d, (f32)(c[2 * r] * 256 + c[2 * r + 1]), parts[r]); }
    __device__ inline void add(int, int r, i32 d, const i32 (&c)[4]) { whole[r][0] += d * c[2 * r], whole[r][1] += d * c[2 * r + 1]; }
    __device__ inline void add_least(int u, int r, f32 m) { least[r] = fmaf(m, sums[u], least[r]); }
    // Of eight units' each lane has two.
    __device__ inline void add_least(int r, f32 m, u32 lower, u32 upper) {
        const int t = lane % 4;
        const u32 two = (t < 2 ? lower : upper) >> t % 2 * 16;
        least[r] = m * fmaf(byte_of(two, 0, 0), sums[2 * t], byte_of(two, 1, 0) * sums[2 * t + 1]);
    }
    // Gives what was added, times d; the least is of one lane, or of all.
    __device__ inline void end(f32 (&own)[OWN], int r, f32 d, bool all) const {
        own[r] = fmaf(d * count, parts[r] + fmaf((f32)whole[r][0], 256.0f, (f32)whole[r][1]), own[r]);
        if (all || lane % 4 == 0) own[r] += least[r];
    }
};
struct Columns {
    const u8 *digits;
    const f32 *counts, *sums;
    f32 parts[2][2], least[2][2];

    __device__ inline Columns(const Rooms &rooms, u32 chunk, int lane) {
        digits = rooms.digits + chunk * UNITS * DIGITS + lane / 4 * 32 + lane % 4 * 8;
        counts = rooms.counts + chunk * UNITS * 8 + lane % 4 * 2;
        sums = rooms.sums + chunk * UNITS * 8 + lane % 4 * 2;
#pragma unroll
        for (int r = 0; r < 2; ++r) parts[r][0] = parts[r][1] = least[r][0] = least[r][1] = 0;
    }
    __device__ inline uint2 unit(int u) const { return *(const uint2 *)(digits + u * DIGITS); }
    __device__ inline void add(int u, int r, f32 d, const i32 (&c)[4]) {
        const float2 each = *(const float2 *)(counts + u * 8);
        parts[r][0] = fmaf(d * each.x, (f32)c[2 * r], parts[r][0]);
        parts[r][1] = fmaf(d * each.y, (f32)c[2 * r + 1], parts[r][1]);
    }
    __device__ inline void add(int u, int r, i32 d, const i32 (&c)[4]) {
        const float2 each = *(const float2 *)(counts + u * 8);
        parts[r][0] = fmaf(each.x, (f32)(d * c[2 * r]), parts[r][0]);
        parts[r][1] = fmaf(each.y, (f32)(d * c[2 * r + 1]), parts[r][1]);
    }
    __device__ inline void add_least(int u, int r, f32 m) {
        const float2 each = *(const float2 *)(sums + u * 8);
        least[r][0] = fmaf(m, each.x, least[r][0]);
        least[r][1] = fmaf(m, each.y, least[r][1]);
    }
    __device__ inline void add_least(int r, f32 m, u32 lower, u32 upper) {
#pragma unroll
        for (int u = 0; u < UNITS; ++u) add_least(u, r, m * byte_of(u < 4 ? lower : upper, u % 4, 0));
    }
    __device__ inline void end(f32 (&own)[OWN], int r, f32 d, bool) const {
#pragma unroll
        for (int i = 0; i < 2; ++i) own[2 * r + i] += fmaf(d, parts[r][i], least[r][i]);
    }
};
#if VECTORS == 1
typedef Digits Sums;
#else
typedef Columns Sums;
#endif

// A chunk's products with 16 rows that are staged.
template <class F> struct Chunk {
    template <bool ALL> static __device__ inline void units(Sums &sums, const u8 *stage, u32 there, const Groups &groups, int lane) {
        const u8 *rows = stage + lane / 4 * Way<F>::STRIDE;
#pragma unroll(ALL ? UNITS : 1)
        for (u32 u = 0; u < (ALL ? UNITS : there); ++u) {
            u32 codes[2][2];
            Scale scales[2];
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                const u8 *block = rows + r * 8 * Way<F>::STRIDE + u * F::BYTES;
                Codes<F>::load(codes[r], block, u * F::BYTES, lane % 4);
                Scale two[2];
                // Beside the rows, if not in them.
                if (F::BESIDE) two[0] = {half_at(stage + 16 * Way<F>::STRIDE + (lane / 4 + 8 * r) * 16 + (u >> groups.shift) * 2), 0};
                else F::scales(two, block, 0, Beside{}, 0, 0);
                scales[r] = two[0];
            }
            const uint2 x = sums.unit(u);
            i32 c[4];
            mma(c, codes[0][0], codes[1][0], codes[0][1], codes[1][1], x.x, x.y);
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                sums.add(u, r, scales[r].d, c);
                if (F::MINIMUM && !F::BESIDE) sums.add_least(u, r, scales[r].m);
            }
        }
    }
    static __device__ inline void add(f32 (&own)[OWN], Sums sums, const u8 *stage, u32, u32 there, const Groups &groups, int lane) {
        if (there == UNITS) units<true>(sums, stage, there, groups, lane);
        else units<false>(sums, stage, there, groups, lane);
#pragma unroll
        for (int r = 0; r < 2; ++r) sums.end(own, r, 1 / Codes<F>::ONE, false);
    }
};
// The scale is the row's: it comes later.
template <> struct Chunk<int8_rows> {
    static __device__ inline void add(f32 (&own)[OWN], Sums sums, const u8 *stage, u32, u32 there, const Groups &, int lane) {
        const u8 *rows = stage + lane / 4 * Way<int8_rows>::STRIDE + lane % 4 * 4;
#pragma unroll
        for (u32 u = 0; u < UNITS; ++u) {
            if (u >= there) break;
            const uint2 x = sums.unit(u);
            const u32 *first = (const u32 *)(rows + u * 32), *second = (const u32 *)(rows + 8 * Way<int8_rows>::STRIDE + u * 32);
            i32 c[4];
            mma(c, first[0], second[0], first[4], second[4], x.x, x.y);
#pragma unroll
            for (int r = 0; r < 2; ++r) sums.add(u, r, 1, c);
        }
#pragma unroll
        for (int r = 0; r < 2; ++r) sums.end(own, r, 1.0f, false);
    }
};
// 256 weights: scales are whole numbers too, of 6 bits, or of 8.
template <class F> struct Blocks {
    static __device__ inline void add(f32 (&own)[OWN], Sums sums, const u8 *stage, u32, u32, const Groups &, int lane) {
        const int t = lane % 4;
        const u8 *rows = stage + lane / 4 * Way<F>::STRIDE;
        u32 ds[2][2];
        f32 scale[2];
        uint2 high[2] = {};
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const u8 *row = rows + r * 8 * Way<F>::STRIDE;
            const uint4 head = *(const uint4 *)row;
            ds[r][0] = head.y & 0x3f3f3f3fu;
            ds[r][1] = (head.w & 0x0f0f0f0fu) | (head.y >> 2 & 0x30303030u);
            const f16 d = {(u16)head.x}, m = {(u16)(head.x >> 16)};
            scale[r] = widen(d);
            sums.add_least(r, -widen(m), head.z & 0x3f3f3f3fu, (head.w >> 4 & 0x0f0f0f0fu) | (head.z >> 2 & 0x30303030u));
            if (F::HIGH) high[r] = *(const uint2 *)(row + 16 + t * 8);
        }
#pragma unroll
        for (int two = 0; two < 4; ++two) {
            uint2 low[2];
#pragma unroll
            for (int r = 0; r < 2; ++r) low[r] = *(const uint2 *)(rows + r * 8 * Way<F>::STRIDE + F::low_at(0) + two * 32 + t * 8);
#pragma unroll
            for (int part = 0; part < 2; ++part) {
                const int u = two * 2 + part;
                u32 codes[2][2];
#pragma unroll
                for (int r = 0; r < 2; ++r) {
                    codes[r][0] = low[r].x >> 4 * part & 0x0f0f0f0fu, codes[r][1] = low[r].y >> 4 * part & 0x0f0f0f0fu;
                    if (F::HIGH) {
                        codes[r][0] |= (u < 4 ? high[r].x << (4 - u) : high[r].x >> (u - 4)) & 0x10101010u;
                        codes[r][1] |= (u < 4 ? high[r].y << (4 - u) : high[r].y >> (u - 4)) & 0x10101010u;
                    }
                }
                const uint2 x = sums.unit(u);
                i32 c[4];
                mma(c, codes[0][0], codes[1][0], codes[0][1], codes[1][1], x.x, x.y);
#pragma unroll
                for (int r = 0; r < 2; ++r) sums.add(u, r, (i32)__byte_perm(ds[r][u / 4], 0, 0x4440 + u % 4), c);
            }
        }
#pragma unroll
        for (int r = 0; r < 2; ++r) sums.end(own, r, scale[r], true);
    }
};
template <> struct Chunk<q4_k> : Blocks<q4_k> {};
template <> struct Chunk<q5_k> : Blocks<q5_k> {};
template <> struct Chunk<q6_k> {
    static __device__ inline void add(f32 (&own)[OWN], Sums sums, const u8 *stage, u32 skew, u32, const Groups &, int lane) {
        const int t = lane % 4;
        const u8 *rows = stage + lane / 4 * Way<q6_k>::STRIDE + skew;
#pragma unroll 1
        for (int half = 0; half < 2; ++half) {
            const SixBits<Way<q6_k>::STRIDE> six(rows, half, t, skew);
#pragma unroll
            for (int unit = 0; unit < 4; ++unit) {
                u32 codes[2][2];
                six.codes(codes, rows, half, unit, t, skew);
                const uint2 x = sums.unit(half * 4 + unit);
                i32 c[2][4];
                mma(c[0], codes[0][0], codes[1][0], x.x);
                mma(c[1], codes[0][1], codes[1][1], x.y);
#pragma unroll
                for (int run = 0; run < 2; ++run) {
#pragma unroll
                    for (int r = 0; r < 2; ++r) sums.add(half * 4 + unit / 2 + run * 2, r, six.scale(r, run, unit), c[run]);
                }
            }
        }
#pragma unroll
        for (int r = 0; r < 2; ++r) sums.end(own, r, half_at(rows + r * 8 * Way<q6_k>::STRIDE + 208) * 0.25f, true);
    }
};

template <class F, class X, class R>
__device__ inline void products(R *out, const u8 *weights, const Beside &beside, const void *x, const Product &p, u8 *room) {
    const int lane = threadIdx.x % 32, wave = threadIdx.x / 32;
    const u32 chunks = (p.units + UNITS - 1) / UNITS, tiles = (p.rows + 15) / 16, rounds = (tiles - blockIdx.x + gridDim.x - 1) / gridDim.x;
    const u32 mine = chunks > wave ? (chunks - wave + WAVES - 1) / WAVES : 0, items = rounds * mine;
    Rooms rooms;
    rooms.digits = room;
    rooms.sums = (f32 *)(room + chunks * UNITS * DIGITS);
    rooms.counts = rooms.sums + (F::MINIMUM && !F::BESIDE ? chunks * UNITS * VECTORS : 0);
    rooms.parts = rooms.counts + (VECTORS == 1 ? (chunks + 3) / 4 * 4 : chunks * UNITS * VECTORS);
    rooms.ring = (u8 *)(rooms.parts + HELD * WAVES * 16 * VECTORS) + wave * STAGES * stage_bytes<F>();
    Ahead<F> ahead(weights, rooms.ring, p, beside, wave, lane);
    let_next_start();
    if (!p.settled) wait_for_last();
#pragma unroll 1
    for (u32 i = 0; i < STAGES - 1; ++i) {
        if (i < items) ahead.fetch(p, beside, chunks, wave, lane);
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    // While they are under way.
    wait_for_last();
#if VECTORS == 1
    // A few at once: the first comes from far.
    for (u32 chunk = wave; chunk < chunks; chunk += 4 * WAVES) {
        f32 values[4][2][4];
#pragma unroll
        for (int i = 0; i < 4; ++i) take<X>(values[i], x, p, chunk + i * WAVES, lane);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (chunk + i * WAVES < chunks) cut<F>(rooms, values[i], chunk + i * WAVES, lane);
        }
    }
#else
    gather<F>(rooms, (const u8 *)x, p, chunks, wave, lane);
#endif
    __syncwarp();
    u32 stage = 0, item = STAGES - 1;
#pragma unroll 1
    for (u32 round = 0; round < rounds; ++round) {
        f32 own[OWN];
#pragma unroll
        for (int i = 0; i < OWN; ++i) own[i] = 0;
#pragma unroll 1
        for (u32 chunk = wave; chunk < chunks; chunk += WAVES, ++item) {
            if (item < items) ahead.fetch(p, beside, chunks, wave, lane);
            asm volatile("cp.async.commit_group;" ::: "memory");
            asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 1) : "memory");
            __syncwarp();
            const u32 left = p.units - chunk * UNITS;
            Chunk<F>::add(own, Sums(rooms, chunk, lane), rooms.ring + stage * stage_bytes<F>(), chunk * Way<F>::CHUNK % 16,
                          left < UNITS ? left : UNITS, beside.groups, lane);
            __syncwarp();
            stage = stage + 1 == STAGES ? 0 : stage + 1;
        }
        f32 *to = rooms.parts + (round % HELD * WAVES + wave) * 16 * VECTORS;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const int row = lane / 4 + 8 * r;
#if VECTORS == 1
            own[r] += __shfl_xor_sync(0xffffffffu, own[r], 1);
            own[r] += __shfl_xor_sync(0xffffffffu, own[r], 2);
            if (lane % 4 == 0) to[row] = own[r];
#else
            const float2 two = {own[2 * r], own[2 * r + 1]};
            *(float2 *)(to + row * 8 + lane % 4 * 2) = two;
#endif
        }
        if ((round + 1) % HELD && round + 1 < rounds) continue;
        // What the waves have is added in their order.
        __syncthreads();
        for (u32 i = threadIdx.x; i < (round % HELD + 1) * 16 * VECTORS; i += THREADS) {
            const u32 held = i / (16 * VECTORS), place = i % (16 * VECTORS), vector = place % VECTORS;
            const u32 row = (blockIdx.x + (round - round % HELD + held) * gridDim.x) * 16 + place / VECTORS;
            if (row >= p.rows || vector >= p.vectors) continue;
            f32 sum = 0;
#pragma unroll
            for (int w = 0; w < WAVES; ++w) sum += rooms.parts[(held * WAVES + w) * 16 * VECTORS + place];
            if (F::BESIDE && !F::MINIMUM) sum *= ((const f32 *)beside.scales)[row];
            out[vector * p.out_row + row * p.out_step] = Narrow<R>::from(sum);
        }
        __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
SYMBOL(NAME, _digits)(V *out, const u8 *weights, const void *scales, Groups groups, const void *x, Product p) {
    extern __shared__ uint4 room[];
    products<T, U, V>(out, weights, Beside{scales, nullptr, groups}, x, p, (u8 *)room);
}

#else
extern "C" __global__ void NAME() {}
#endif
