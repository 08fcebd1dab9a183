// Tiles of attention in shared memory, and how they get there.

#if defined(TILE_MMA)
#define COPIES_RUN_BESIDE true
#else
#define COPIES_RUN_BESIDE false
#endif

// A tile of rows of D elements in shared memory: panels of 128 bytes, in which the eight 16-byte pieces of a row change places so that one
// piece of eight rows lies in eight places. Seen from (row0, column0) on, a multiple of 16 rows and 16 columns.
template <class T, int ROWS> struct Panels {
    static const int WIDTH = 128 / sizeof(T), PIECE = 16 / sizeof(T);
    T *base;
    int row0, column0;
    __device__ T *operator()(int row, int column) const {
        const int start = row * WIDTH + (column / PIECE ^ row % 8) * PIECE;
        return base + (start ^ column0 % WIDTH) + (column0 / WIDTH * ROWS + row0) * WIDTH;
    }
};

// Rows of pages, or at odd places.
template <int COLUMNS, int ROWS, int STEP, class T>
__device__ inline void fetch_any(T *place, const Rows<T> &rows, i32 first, i32 end, const Attention &a, int row0, int piece) {
#pragma unroll 1
    for (int row = 0; row + row0 < ROWS; row += STEP) {
        const T *const start = first + row0 + row < end ? rows.at(first + row0 + row) : nullptr, *const from = start + piece * 8;
#pragma unroll 1
        for (int panel = 0; panel < (COLUMNS + 63) / 64; ++panel) {
            T *const piece_at = place + (panel * ROWS + row) * 64;
            const bool within = start && panel * 64 + piece * 8 < a.dim;
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

// Starts to bring ROWS rows of so many columns from row `first` on into panels, with COUNT threads of which this one has a number; rows at
// and beyond `end`, and columns beyond the head's size, become zeros. Eight threads have a row, and each the same piece of its rows.
// EVERY kind of rows: of pages and at odd places too.
template <int COLUMNS, int ROWS, int COUNT, bool EVERY, class T>
__device__ inline void fetch(T *to, const Rows<T> &rows, i32 first, i32 end, const Attention &a, int thread) {
    const int row0 = thread / 8, piece = thread % 8, STEP = COUNT / 8, PANELS = (COLUMNS + 63) / 64;
    static_assert(COUNT % 64 == 0, "a thread's rows have their pieces in one order");
    T *const place = to + row0 * 64 + (piece ^ row0 % 8) * 8;
    // Without copies that run beside, one way is enough.
    if (COPIES_RUN_BESIDE && (!EVERY || (a.aligned && !rows.table))) {
        const T *from = rows.base + (first + row0) * rows.step + piece * 8;
#pragma unroll
        for (int row = 0; row < ROWS; row += STEP, from += STEP * rows.step) {
            if (ROWS % STEP != 0 && row + row0 >= ROWS) break;
#pragma unroll
            for (int panel = 0; panel < PANELS; ++panel)
                if (COLUMNS % 64 == 0 || panel * 64 + piece * 8 < COLUMNS) {
                    const bool within = first + row0 + row < end && panel * 64 + piece * 8 < a.dim;
                    copy_async16(place + (panel * ROWS + row) * 64, from + panel * 64, within ? 16 : 0);
                }
        }
        return;
    }
    if constexpr (EVERY || !COPIES_RUN_BESIDE) fetch_any<COLUMNS, ROWS, STEP>(place, rows, first, end, a, row0, piece);
}
