// Rotary embedding: pairs of elements turned by an angle that grows with the token's place.
//
// T is the elements' type, U that of the places, V that of the angles: OP_rope takes the frequencies of the pairs, OP_rope_table takes
// cosines and sines by place and pair. A thread has PAIRS pairs of HEADS heads; blocks of y share a row's. Elements behind those that are turned are only moved.
// TOGETHER says that a pair stands together; otherwise its second stands in the second half.

struct Rope {
    Steps x, out;
    // Steps: of the places, sequence and token; of the angles, place and pair.
    i32 places[2], angles[2], more_angles[2];
    // Rows are all tokens. Then pairs, and elements that are only moved.
    i32 tokens, rows, table_rows, heads, pairs, rest, start, padding;
    f64 factor;
};

#define HEADS 2
#define EACH (VECTORS ? 16 / (int)sizeof(T) : 1)
#define PAIRS EACH
typedef Traits<T>::Math Math;
typedef Packed<T, EACH> Elements;
typedef Access<sizeof(T) * EACH>::Type Raw;

__device__ inline void angles_of(const Rope &r, const V *angles, const V *more, i64 place, i32 pair, Math &sine, Math &cosine) {
#if defined(OP_rope_table)
    const i64 row = place < 0 ? 0 : place < r.table_rows ? place : r.table_rows - 1;
    cosine = (Math)widen(angles[row * r.angles[0] + (i64)pair * r.angles[1]]);
    sine = (Math)widen(more[row * r.more_angles[0] + (i64)pair * r.more_angles[1]]);
#else
    turn((Math)place, angles[(i64)pair * r.angles[1]], sine, cosine);
    cosine *= (Math)r.factor;
    sine *= (Math)r.factor;
#endif
}

extern "C" __global__ void NAME(const T *x, T *out, const U *places, const V *angles, const V *more, Rope r) {
    take_turn();
    // The angles of the block's rows, once for all heads.
    extern __shared__ f64 room[];
    Math *cosines = (Math *)room, *sines = cosines + blockDim.y * r.pairs;
    const i32 turned = r.pairs / PAIRS, units = turned + r.rest / EACH, items = units * ((r.heads + HEADS - 1) / HEADS);
    for (i32 row0 = blockIdx.x * blockDim.y; row0 < r.rows; row0 += gridDim.x * blockDim.y) {
        const i32 row = row0 + threadIdx.y, sequence = row / r.tokens, token = row - sequence * r.tokens;
        // All loads are under way before the first is needed, and the first before the angles are known.
        Elements elements[HEADS][2];
        const auto load = [&](i32 item) {
            const i32 chunk = item / units, unit = item - chunk * units, head0 = chunk * HEADS, pair0 = unit * PAIRS;
            if (row >= r.rows || item >= items || unit >= turned) return;
            const T *from = x + r.x.at(sequence, token, head0);
            const i64 first = TOGETHER ? 2 * pair0 : pair0, second = TOGETHER ? first + EACH : r.pairs + pair0;
#pragma unroll
            for (int h = 0; h < HEADS; ++h) {
                if (h >= r.heads - head0) continue;
                elements[h][0].raw = *(const Raw *)(from + (i64)h * r.x.head + first * r.x.element);
                elements[h][1].raw = *(const Raw *)(from + (i64)h * r.x.head + second * r.x.element);
            }
        };
        const i32 item0 = blockIdx.y * blockDim.x + threadIdx.x;
        load(item0);
        __syncthreads();
        if (row < r.rows) {
            const i64 place = r.start + (places ? (i64)places[(i64)sequence * r.places[0] + (i64)token * r.places[1]] : token);
            for (i32 pair = threadIdx.x; pair < r.pairs; pair += blockDim.x) {
                const i32 at = threadIdx.y * r.pairs + pair;
                angles_of(r, angles, more, place, pair, sines[at], cosines[at]);
            }
        }
        __syncthreads();
        if (row >= r.rows) continue;
        for (i32 item = item0; item < items; item += gridDim.y * blockDim.x) {
            const i32 chunk = item / units, unit = item - chunk * units, head0 = chunk * HEADS;
            const T *from = x + r.x.at(sequence, token, head0);
            T *to = out + r.out.at(sequence, token, head0);
            const i32 left = r.heads - head0 < HEADS ? r.heads - head0 : HEADS;
            if (unit >= turned) {
                const i64 at = 2 * r.pairs + (unit - turned) * EACH;
                for (int h = 0; h < left; ++h) {
                    put<T, EACH>(to + (i64)h * r.out.head + at * r.out.element, get<T, EACH>(from + (i64)h * r.x.head + at * r.x.element));
                }
                continue;
            }
            const i32 pair0 = unit * PAIRS;
            const i64 first = TOGETHER ? 2 * pair0 : pair0, second = TOGETHER ? first + EACH : r.pairs + pair0;
            if (item != item0) load(item);
            const Math *cosine = cosines + threadIdx.y * r.pairs + pair0, *sine = sines + threadIdx.y * r.pairs + pair0;
#pragma unroll
            for (int h = 0; h < HEADS; ++h) {
                if (h >= left) continue;
#pragma unroll
                for (int p = 0; p < PAIRS; ++p) {
                    T &one = TOGETHER ? elements[h][2 * p / EACH].pack.at[2 * p % EACH] : elements[h][0].pack.at[p];
                    T &other = TOGETHER ? elements[h][(2 * p + 1) / EACH].pack.at[(2 * p + 1) % EACH] : elements[h][1].pack.at[p];
                    const Math a = widen(one), b = widen(other);
                    one = Narrow<T>::from(a * cosine[p] - b * sine[p]);
                    other = Narrow<T>::from(a * sine[p] + b * cosine[p]);
                }
                store_raw((Raw *)(to + (i64)h * r.out.head + first * r.out.element), elements[h][0].raw);
                store_raw((Raw *)(to + (i64)h * r.out.head + second * r.out.element), elements[h][1].raw);
            }
        }
    }
}
