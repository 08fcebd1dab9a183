// Query, key and value tiles in shared memory, and their loads.

#pragma once

#include "attention/attention.cuh"
#include "common/tile.cuh"
#if defined(CODES)
#include "attention/codes.cuh"
#endif

#if defined(TILE_MMA)
#define HAS_ASYNC_COPY true
#else
#define HAS_ASYNC_COPY false
#endif

// A tile of rows in shared memory: panels of 128 bytes whose eight 16-byte chunks per row are swizzled, so that a column of chunks has no
// bank conflicts. Viewed from (row0, column0), multiples of 16.
template <class T, int ROWS> struct SwizzledPanels {
    static const int WIDTH = 128 / sizeof(T), CHUNK = 16 / sizeof(T);
    T *base;
    int row0, column0;
    __device__ T *operator()(int row, int column) const {
        const int start = row * WIDTH + (column / CHUNK ^ row % 8) * CHUNK;
        return base + (start ^ column0 % WIDTH) + (column0 / WIDTH * ROWS + row0) * WIDTH;
    }
};

// Loads paged or unaligned rows.
template <int COLUMNS, int ROWS, int STEP, class T>
__device__ inline void load_tile_generic(T *place, const Rows<T> &rows, i32 first, i32 end, const Attention &a, int row0, int chunk) {
#pragma unroll 1
    for (int row = 0; row + row0 < ROWS; row += STEP) {
        const T *const start = first + row0 + row < end ? rows.at(first + row0 + row) : nullptr, *const from = start + chunk * 8;
#pragma unroll 1
        for (int panel = 0; panel < (COLUMNS + 63) / 64; ++panel) {
            T *const piece_at = place + (panel * ROWS + row) * 64;
            const bool within = start && panel * 64 + chunk * 8 < a.dim;
            if (a.aligned) {
                copy_async16(piece_at, from + panel * 64, within ? 16 : 0);
                continue;
            }
#pragma unroll
            for (int e = 0; e < 8; ++e) {
                T zero = {0};
                piece_at[e] = within ? from[panel * 64 + e] : zero;
            }
        }
    }
}

// Starts loading ROWS rows from row `first` into panels, with COUNT threads; rows from `end` on and columns beyond head_dim become zeros.
// Eight threads load a row, each the same chunk of all its rows. GENERIC also supports paged and unaligned rows.
template <int COLUMNS, int ROWS, int COUNT, bool GENERIC, class T>
__device__ inline void load_tile(T *to, const Rows<T> &rows, i32 first, i32 end, const Attention &a, int thread) {
    const int row0 = thread / 8, chunk = thread % 8, STEP = COUNT / 8, PANELS = (COLUMNS + 63) / 64;
    static_assert(COUNT % 64 == 0, "a thread's rows have their pieces in one order");
    T *const place = to + row0 * 64 + (chunk ^ row0 % 8) * 8;
    // Without asynchronous copies, one path is enough.
    if (HAS_ASYNC_COPY && (!GENERIC || (a.aligned && !rows.table))) {
        const T *from = rows.base + (first + row0) * rows.step + chunk * 8;
#pragma unroll
        for (int row = 0; row < ROWS; row += STEP, from += STEP * rows.step) {
            if (ROWS % STEP != 0 && row + row0 >= ROWS) break;
#pragma unroll
            for (int panel = 0; panel < PANELS; ++panel)
                if (COLUMNS % 64 == 0 || panel * 64 + chunk * 8 < COLUMNS) {
                    const bool within = first + row0 + row < end && panel * 64 + chunk * 8 < a.dim;
                    copy_async16(place + (panel * ROWS + row) * 64, from + panel * 64, within ? 16 : 0);
                }
        }
        return;
    }
    if constexpr (GENERIC || !HAS_ASYNC_COPY) load_tile_generic<COLUMNS, ROWS, STEP>(place, rows, first, end, a, row0, chunk);
}

#if defined(CODES)
// Loads rows of a quantized cache as `load_tile` does, converted to T.
template <int COLUMNS, int ROWS, int COUNT, class T>
__device__ inline void load_codes(T *to, const Rows<Code> &rows, const Rows<f16> &scales, i32 first, i32 end, const Attention &a, int thread) {
    const int row0 = thread / 8, chunk = thread % 8, STEP = COUNT / 8;
    T *const place = to + row0 * 64 + (chunk ^ row0 % 8) * 8;
#pragma unroll 2
    for (int row = 0; row < ROWS; row += STEP) {
        if (ROWS % STEP != 0 && row + row0 >= ROWS) break;
        const Code *const from = first + row0 + row < end ? rows.at(first + row0 + row) : nullptr;
        const f16 *const scale = from ? scales.at(first + row0 + row) : nullptr;
#pragma unroll
        for (int panel = 0; panel < (COLUMNS + 63) / 64; ++panel) {
            const int column = panel * 64 + chunk * 8;
            union { uint4 raw; T each[8]; } piece;
            piece.raw = uint4{0, 0, 0, 0};
            if (from && column < a.dim) expand(piece.each, get_codes(from + column, a.aligned), widen(scale[group_of(column)]));
            *(uint4 *)(place + (panel * ROWS + row) * 64) = piece.raw;
        }
    }
}
#endif
