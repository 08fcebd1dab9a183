// What products on NVIDIA's matrix units have in common. 256 columns are a chunk, of eight units. A block of threads has 16 rows at a time,
// a tile; its waves share the chunks, and copy theirs to shared memory STAGES ahead.

#if !defined(__AMDGCN__) && __CUDA_ARCH__ >= 800

#define WAVES (THREADS / 32)
#define UNITS 8

struct Product {
    // Bytes from row to row of the weights; elements from vector to vector and from column to column of x; the same of the result.
    u64 weights_row, x_row, x_step, out_row, out_step;
    u32 rows, units, vectors;
    // Whether x is without gaps and aligned to 16 bytes.
    u32 wide;
    // Whether the weights are there before the kernel before this one ends.
    u32 settled;
};

template <int BYTES> __device__ inline void copy_ahead(u32 to, const u8 *from) {
    if constexpr (BYTES == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
    else asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(BYTES) : "memory");
}

// c = a · b: 16 rows by 32 columns, and 32 columns of eight digits.
__device__ inline void mma(i32 (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
        : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "r"(0));
}
// By 16 columns.
__device__ inline void mma(i32 (&c)[4], u32 a0, u32 a1, u32 b0) {
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %7, %7};"
        : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
        : "r"(a0), "r"(a1), "r"(b0), "r"(0));
}
// c += a · b, the same.
__device__ inline void mma_add(i32 (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
__device__ inline void mma_add(i32 (&c)[4], u32 a0, u32 a1, u32 b0) {
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a0), "r"(a1), "r"(b0));
}

// Four neighbours of x.
template <class X> struct Source {
    static __device__ inline void load(f32 (&values)[4], const void *from, const Product &p, u32 word) {
        const X *x = (const X *)from + (u64)word * 4 * p.x_step;
        if (p.wide) {
            struct alignas(4 * sizeof(X)) Four { X at[4]; };
            const Four four = *(const Four *)x;
#pragma unroll
            for (int i = 0; i < 4; ++i) values[i] = widen(four.at[i]);
        } else {
#pragma unroll
            for (int i = 0; i < 4; ++i) values[i] = widen(x[i * p.x_step]);
        }
    }
};

// How the weights' words go to lanes: where one is among those of x, in units of 32 bytes; bytes of a chunk's row, and from row to row in shared memory, so that eight rows' words are in
// different banks.
template <class F> struct Way {
    // Formats of 32 weights: a lane has word t of both runs of a unit.
    static const int CHUNK = UNITS / (F::BLOCK / 32) * F::BYTES, COPIED = (CHUNK + 15) / 16 * 16;
    static const int STRIDE = COPIED / 16 % 2 ? COPIED : COPIED + 16;
    static __device__ u32 place(u32 word) { return word / 8 * 32 + word % 4 * 8 + word / 4 % 2 * 4; }
};
struct Halves {
    // Formats of 256: a lane has words 2t and 2t + 1 of 32 weights.
    static __device__ u32 place(u32 word) { return word / 8 * 32 + word % 8 * 4; }
};
template <> struct Way<q4_k> : Halves { static const int CHUNK = 144, COPIED = 144, STRIDE = 160; };
template <> struct Way<q5_k> : Halves { static const int CHUNK = 176, COPIED = 176, STRIDE = 224; };
template <> struct Way<q6_k> {
    // Chunks do not begin at a multiple of 16 bytes: up to 14 more are copied in front.
    static const int CHUNK = 210, COPIED = 240, STRIDE = 240;
    // A run of 16 with that 64 columns behind it.
    static __device__ u32 place(u32 word) {
        return (word / 32 * 4 + word / 4 % 4) * 32 + word % 4 * 8 + word / 16 % 2 * 4;
    }
};

template <class F> __device__ constexpr int stage_bytes() { return 16 * Way<F>::STRIDE + (F::BESIDE ? 256 : 0); }

// Four bytes of four words, the same byte of each together.
__device__ inline void turned(const u32 (&from)[4], u32 (&to)[4]) {
    const u32 a = __byte_perm(from[0], from[1], 0x5140), b = __byte_perm(from[2], from[3], 0x5140);
    const u32 c = __byte_perm(from[0], from[1], 0x7362), d = __byte_perm(from[2], from[3], 0x7362);
    to[0] = __byte_perm(a, b, 0x5410), to[1] = __byte_perm(a, b, 0x7632);
    to[2] = __byte_perm(c, d, 0x5410), to[3] = __byte_perm(c, d, 0x7632);
}

// A lane's part of a chunk of x.
template <class X> __device__ inline void take(f32 (&values)[2][4], const void *x, const Product &p, u32 chunk, int lane) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
        const u32 word = chunk * UNITS * 8 + j * 32 + lane;
#pragma unroll
        for (int i = 0; i < 4; ++i) values[j][i] = 0;
        if (word < p.units * 8) Source<X>::load(values[j], x, p, word);
    }
}

// Word t of both runs of a unit of 32 weights as signed bytes; ONE is what 1 is in them.
template <class F> struct Codes {
    static constexpr f32 ONE = 1;
    static __device__ inline void load(u32 (&runs)[2], const u8 *block, u32 place, int t) {
        Words<F, 1, true> low, high;
        low.load(block + F::low_at(0) + 4 * t, place + F::low_at(0));
        if (F::LOW == 8) {
            high.load(block + F::low_at(0) + 16 + 4 * t, place + F::low_at(0));
            runs[0] = low.at[0], runs[1] = high.at[0];
        } else {
            if (F::HIGH) high.load(block + F::high_at(0), place + F::high_at(0));
            runs[0] = F::codes(low.at[0], high.at[0], 0, t), runs[1] = F::codes(low.at[0], high.at[0], 0, 4 + t);
        }
    }
};
// Where a code less than some means less than 0, they are in the upper bits: turning the last over makes them signed.
struct Upper4 {
    static constexpr f32 ONE = 16;
    static __device__ inline void split(u32 (&runs)[2], u32 word) {
        runs[0] = (word << 4 ^ 0x80808080u) & 0xf0f0f0f0u, runs[1] = (word ^ 0x80808080u) & 0xf0f0f0f0u;
    }
};
template <> struct Codes<q4_0> : Upper4 {
    static __device__ inline void load(u32 (&runs)[2], const u8 *block, u32 place, int t) {
        Words<q4_0, 1, true> low;
        low.load(block + 2 + 4 * t, place + 2);
        split(runs, low.at[0]);
    }
};
template <> struct Codes<int4_groups> : Upper4 {
    static __device__ inline void load(u32 (&runs)[2], const u8 *block, u32, int t) { split(runs, *(const u32 *)(block + 4 * t)); }
};
template <> struct Codes<q5_0> {
    static constexpr f32 ONE = 8;
    static __device__ inline void load(u32 (&runs)[2], const u8 *block, u32 place, int t) {
        Words<q5_0, 1, true> low, high;
        low.load(block + 6 + 4 * t, place + 6);
        high.load(block + 2, place + 2);
        const u32 fifths = high.at[0] >> 4 * t;
        runs[0] = (low.at[0] << 3 & 0x78787878u) | (~((fifths & 15u) * 0x10204080u) & 0x80808080u);
        runs[1] = (low.at[0] >> 1 & 0x78787878u) | (~((fifths >> 16 & 15u) * 0x10204080u) & 0x80808080u);
    }
};

// Copies a wave's chunks, one after the other, tile after tile; rows behind the last are the last once more.
template <class F> struct Ahead {
    static const int EACH = Way<F>::COPIED / 16, COPIES = (16 * EACH + 31) / 32;
    const u8 *weights, *from, *scales;
    // Where a lane's pieces are in a tile, and where they go in a stage.
    u32 at[COPIES], to[COPIES], ring, tile, chunk, stage;

    __device__ inline void places(const Product &p, u32 last, int lane) {
#pragma unroll
        for (int j = 0; j < COPIES; ++j) {
            const u32 piece = j * 32 + lane, row = piece / EACH < last ? piece / EACH : last;
            at[j] = row * (u32)p.weights_row + piece % EACH * 16;
        }
    }
    __device__ inline Ahead(const u8 *weights, u8 *room, const Product &p, const Beside &beside, u32 wave, int lane) : weights(weights) {
        ring = (u32)__cvta_generic_to_shared(room), tile = blockIdx.x, stage = 0;
#pragma unroll
        for (int j = 0; j < COPIES; ++j) {
            const int piece = j * 32 + lane;
            to[j] = piece / EACH * Way<F>::STRIDE + piece % EACH * 16;
        }
        places(p, 15, lane);
        begin(p, beside, wave, lane);
    }
    __device__ inline void begin(const Product &p, const Beside &beside, u32 wave, int lane) {
        chunk = wave;
        const u32 left = p.rows - tile * 16;
        from = weights + tile * 16 * p.weights_row;
        if (left < 16) places(p, left - 1, lane);
        if (F::BESIDE) {
            const u32 wanted = tile * 16 + lane % 16, row = wanted < p.rows ? wanted : p.rows - 1;
            scales = (const u8 *)beside.scales + (u64)row * beside.groups.in_row * 2;
        }
    }
    __device__ inline void fetch(const Product &p, const Beside &beside, u32 chunks, u32 wave, int lane) {
        const u32 first = chunk * Way<F>::CHUNK, start = Way<F>::CHUNK % 16 ? first & ~15u : first;
        const u32 base = ring + stage * stage_bytes<F>(), left = (u32)p.weights_row - start;
        if (left >= Way<F>::COPIED) {
#pragma unroll
            for (int j = 0; j < COPIES; ++j) {
                if (j * 32 + 32 <= 16 * EACH || j * 32 + lane < 16 * EACH) copy_ahead<16>(base + to[j], from + start + at[j]);
            }
        } else {
#pragma unroll
            for (int j = 0; j < COPIES; ++j) {
                const u32 piece = j * 32 + lane;
                if (piece < 16 * EACH && piece % EACH * 16 < left) copy_ahead<16>(base + to[j], from + start + at[j]);
            }
        }
        if (F::BESIDE && F::MINIMUM && lane < 16) {
            const u32 there = base + 16 * Way<F>::STRIDE + lane * 16;
            const u32 shift = beside.groups.shift;
            if (shift == 0) copy_ahead<16>(there, scales + chunk * 16);
            else if (shift == 1) copy_ahead<8>(there, scales + chunk * 8);
            else copy_ahead<4>(there, scales + chunk * 4);
        }
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        chunk += WAVES;
        if (chunk >= chunks) {
            tile += gridDim.x;
            begin(p, beside, wave, lane);
        }
    }
};

#endif

// Two rows of q6_k, eight apart, STRIDE bytes from row to row: the upper bits and scales of half a block, for a quarter `t` of each word.
template <int STRIDE> struct SixBits {
    u32 high[2][2], scales[2][2];
    __device__ inline SixBits(const u8 *rows, int half, int t, u32 skew) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const u8 *block = rows + r * 8 * STRIDE;
            Words<q6_k, 2, true> two;
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                Words<q6_k, 1, true> word;
                word.load(block + 128 + half * 32 + i * 16 + 4 * t, skew);
                high[r][i] = word.at[0];
            }
            two.load(block + 192 + half * 8, skew);
            scales[r][0] = two.at[0], scales[r][1] = two.at[1];
        }
    }
    // Of a unit of four, four times what they mean.
    __device__ inline void codes(u32 (&codes)[2][2], const u8 *rows, int half, int unit, int t, u32 skew) const {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            Words<q6_k, 1, true> low;
            low.load(rows + r * 8 * STRIDE + (half * 4 + unit) * 16 + 4 * t, skew);
            const u32 upper = high[r][unit % 2];
            codes[r][0] = (low.at[0] << 2 & 0x3c3c3c3cu) | ((unit < 2 ? upper << 6 : upper << 4) & 0xc0c0c0c0u);
            codes[r][1] = (low.at[0] >> 2 & 0x3c3c3c3cu) | ((unit < 2 ? upper << 2 : upper) & 0xc0c0c0c0u);
            codes[r][0] ^= 0x80808080u, codes[r][1] ^= 0x80808080u;
        }
    }
    __device__ inline i32 scale(int r, int run, int unit) const { return (i32)(i8)(scales[r][run] >> unit * 8); }
};
