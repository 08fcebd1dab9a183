/* MPI_Allreduce on every pair of predefined datatype and operator that the standard allows, with several counts, normal and in place.
 *
 *   matrix [--base N] [--short] [--sample K] [--seed S] [--list] [--cail] [--native] [--memory KIND]
 *
 * Expected results are computed from all ranks' data, which is a function of rank and index: integers exactly, wrapping; floats in
 * long double with an error bound of np * eps * sum|x| for sums and np * eps * |product| for products (four times that for complex
 * numbers); minimum and maximum exactly. A case is also wrong if bytes around the receive buffer, its padding or the send buffer have
 * changed, or if the ranks' results differ bitwise.
 *
 * --memory puts the buffers into GPU memory: `device`, `managed`, `mixed` (every other rank), `rotate` (a different kind for each rank
 * and case, independently for send and receive buffer).
 *
 * --native excludes cases in which widely used MPI libraries are wrong.
 *
 * The last line is `cases N wrong W plain P`, with P the number of cases with elements and without long double.
 */
#include <math.h>
#include <mpi.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu.h"

#define GUARD 64
#define POISON 0xa5
#define SEND_PADDING 0x3c
#define LONG_DOUBLE_BYTES 10 /* of 16 on x86-64; the rest is padding */

enum class { C_INTEGER, FORTRAN_INTEGER, FLOAT, COMPLEX, LOGICAL, BYTES, PAIR };
enum op { SUM, PROD, MAX, MIN, LAND, LOR, LXOR, BAND, BOR, BXOR, MAXLOC, MINLOC, OPS };

struct type {
    const char *name;
    MPI_Datatype handle;
    enum class class;
    char repr;     /* first field: 's'igned, 'u'nsigned, 'f'loat */
    size_t size;   /* of the first field */
    size_t offset2; /* offset of the second field of a pair or complex number, or 0 */
    char repr2;    /* second field */
    size_t size2;  /* of the second field */
    size_t extent;
    int cail;      /* one of CAIL's twenty handles */
    int brief;     /* one of the few types of --short */
};

/* One or two numbers: complex parts, or a value and its location. */
struct value {
    uint64_t i[2];
    long double f[2];
    long double bound;
};

static const struct { const char *name; unsigned classes; } OP[OPS] = {
#define ARITHMETIC (1 << C_INTEGER | 1 << FORTRAN_INTEGER | 1 << FLOAT)
#define LOGIC (1 << C_INTEGER | 1 << LOGICAL)
#define BITS (1 << C_INTEGER | 1 << FORTRAN_INTEGER | 1 << BYTES)
    [SUM] = {"SUM", ARITHMETIC | 1 << COMPLEX}, [PROD] = {"PROD", ARITHMETIC | 1 << COMPLEX},
    [MAX] = {"MAX", ARITHMETIC}, [MIN] = {"MIN", ARITHMETIC},
    [LAND] = {"LAND", LOGIC}, [LOR] = {"LOR", LOGIC}, [LXOR] = {"LXOR", LOGIC},
    [BAND] = {"BAND", BITS}, [BOR] = {"BOR", BITS}, [BXOR] = {"BXOR", BITS},
    [MAXLOC] = {"MAXLOC", 1 << PAIR}, [MINLOC] = {"MINLOC", 1 << PAIR},
};

static MPI_Op op_handle(enum op op) {
    const MPI_Op handles[OPS] = {MPI_SUM, MPI_PROD, MPI_MAX, MPI_MIN, MPI_LAND, MPI_LOR, MPI_LXOR, MPI_BAND, MPI_BOR, MPI_BXOR,
                                 MPI_MAXLOC, MPI_MINLOC};
    return handles[op];
}

static struct type TYPES[80];
static size_t types;
static int rank, np;

/* Adds a datatype, unless this MPI library lacks it or has it in another size. */
static void add(struct type t) {
    if (t.handle == MPI_DATATYPE_NULL) return;
    int size;
    MPI_Type_size(t.handle, &size);
    if ((size_t)size == t.size + t.size2) TYPES[types++] = t;
}

static void add_types(void) {
#define NAMED(h) .name = #h, .handle = MPI_##h
#define ONE(h, c, r, s, ...) add((struct type){NAMED(h), .class = c, .repr = r, .size = s, .extent = s, __VA_ARGS__})
#define INTEGER(h, T, ...) ONE(h, C_INTEGER, (T)-1 < (T)1 ? 's' : 'u', sizeof(T), __VA_ARGS__)
    INTEGER(SIGNED_CHAR, signed char, .cail = 1);
    INTEGER(UNSIGNED_CHAR, unsigned char, .cail = 1);
    INTEGER(SHORT, short, .cail = 1);
    INTEGER(UNSIGNED_SHORT, unsigned short, .cail = 1);
    INTEGER(INT, int, .cail = 1, .brief = 1);
    INTEGER(UNSIGNED, unsigned, .cail = 1);
    INTEGER(LONG, long, .cail = 1);
    INTEGER(UNSIGNED_LONG, unsigned long, .cail = 1);
    INTEGER(LONG_LONG, long long, .cail = 1);
    INTEGER(UNSIGNED_LONG_LONG, unsigned long long, .cail = 1);
    INTEGER(INT8_T, int8_t, .cail = 1);
    INTEGER(UINT8_T, uint8_t, .cail = 1, .brief = 1);
    INTEGER(INT16_T, int16_t, .cail = 1);
    INTEGER(UINT16_T, uint16_t, .cail = 1);
    INTEGER(INT32_T, int32_t, .cail = 1);
    INTEGER(UINT32_T, uint32_t, .cail = 1);
    INTEGER(INT64_T, int64_t, .cail = 1);
    INTEGER(UINT64_T, uint64_t, .cail = 1);
    ONE(FLOAT, FLOAT, 'f', sizeof(float), .cail = 1, .brief = 1);
    ONE(DOUBLE, FLOAT, 'f', sizeof(double), .cail = 1, .brief = 1);
    ONE(LONG_DOUBLE, FLOAT, 'f', sizeof(long double));
#if defined MPIX_C_FLOAT16 && defined __FLT16_MAX__
    add((struct type){.name = "C_FLOAT16", .handle = MPIX_C_FLOAT16, .class = FLOAT, .repr = 'f', .size = 2, .extent = 2});
#endif
    ONE(AINT, FORTRAN_INTEGER, 's', sizeof(MPI_Aint));
    ONE(OFFSET, FORTRAN_INTEGER, 's', sizeof(MPI_Offset));
    ONE(COUNT, FORTRAN_INTEGER, 's', sizeof(MPI_Count));
    ONE(INTEGER, FORTRAN_INTEGER, 's', 4);
    ONE(INTEGER1, FORTRAN_INTEGER, 's', 1);
    ONE(INTEGER2, FORTRAN_INTEGER, 's', 2);
    ONE(INTEGER4, FORTRAN_INTEGER, 's', 4);
    ONE(INTEGER8, FORTRAN_INTEGER, 's', 8);
    ONE(REAL, FLOAT, 'f', 4);
    ONE(DOUBLE_PRECISION, FLOAT, 'f', 8);
    ONE(REAL4, FLOAT, 'f', 4);
    ONE(REAL8, FLOAT, 'f', 8);
    ONE(C_BOOL, LOGICAL, 'u', sizeof(_Bool));
    ONE(CXX_BOOL, LOGICAL, 'u', sizeof(_Bool));
    ONE(LOGICAL, LOGICAL, 's', 4);
    ONE(BYTE, BYTES, 'u', 1);
#define TWO(h, c, r, s, at, r2, s2, e, ...) \
    add((struct type){NAMED(h), .class = c, .repr = r, .size = s, .offset2 = at, .repr2 = r2, .size2 = s2, .extent = e, __VA_ARGS__})
#define PARTS(h, s, ...) TWO(h, COMPLEX, 'f', s, s, 'f', s, 2 * s, __VA_ARGS__)
    PARTS(C_COMPLEX, sizeof(float));
    PARTS(C_FLOAT_COMPLEX, sizeof(float));
    PARTS(C_DOUBLE_COMPLEX, sizeof(double), .brief = 1);
    PARTS(C_LONG_DOUBLE_COMPLEX, sizeof(long double));
    PARTS(CXX_FLOAT_COMPLEX, sizeof(float));
    PARTS(CXX_DOUBLE_COMPLEX, sizeof(double));
    PARTS(CXX_LONG_DOUBLE_COMPLEX, sizeof(long double));
    PARTS(COMPLEX, 4);
    PARTS(DOUBLE_COMPLEX, 8);
    PARTS(COMPLEX8, 4);
    PARTS(COMPLEX16, 8);
    TWO(FLOAT_INT, PAIR, 'f', 4, 4, 's', 4, 8);
    TWO(DOUBLE_INT, PAIR, 'f', 8, 8, 's', 4, 16, .brief = 1);
    TWO(LONG_INT, PAIR, 's', 8, 8, 's', 4, 16);
    TWO(2INT, PAIR, 's', 4, 4, 's', 4, 8);
    TWO(SHORT_INT, PAIR, 's', 2, 4, 's', 4, 8, .brief = 1);
    TWO(LONG_DOUBLE_INT, PAIR, 'f', 16, 16, 's', 4, 32);
    TWO(2REAL, PAIR, 'f', 4, 4, 'f', 4, 8);
    TWO(2DOUBLE_PRECISION, PAIR, 'f', 8, 8, 'f', 8, 16);
    TWO(2INTEGER, PAIR, 's', 4, 4, 's', 4, 8);
}

/* Open MPI 4.1 compares unsigned long as signed and MPI_OFFSET as unsigned; MPICH 4.0 compares every unsigned type as signed and
 * aborts on its own half-precision type. */
static int is_native_fault(const struct type *t, enum op op) {
    int compares = op == MAX || op == MIN;
#ifdef OPEN_MPI
    return compares && (t->handle == MPI_UNSIGNED_LONG || t->handle == MPI_OFFSET);
#else
    return (compares && t->repr == 'u') || (t->repr == 'f' && t->size == 2);
#endif
}

/* ---- values and their bytes ---- */

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Truncates to the size of the type and extends again. */
static uint64_t narrow(char repr, size_t size, uint64_t x) {
    unsigned unused = 64 - 8 * (unsigned)size;
    return repr == 's' ? (uint64_t)((int64_t)(x << unused) >> unused) : x << unused >> unused;
}

static void store_number(char repr, size_t size, uint64_t i, long double f, unsigned char *to) {
    float f32 = (float)f;
    double f64 = (double)f;
    if (repr != 'f') memcpy(to, &i, size);
    else if (size == 4) memcpy(to, &f32, 4);
    else if (size == 8) memcpy(to, &f64, 8);
    else if (size == 16) memcpy(to, &f, LONG_DOUBLE_BYTES);
#ifdef __FLT16_MAX__
    else memcpy(to, &(_Float16){(_Float16)f}, 2);
#endif
}

static void load_number(char repr, size_t size, const unsigned char *from, uint64_t *i, long double *f) {
    float f32;
    double f64;
    *i = 0;
    if (repr != 'f') memcpy(i, from, size), *i = narrow(repr, size, *i);
    else if (size == 4) memcpy(&f32, from, 4), *f = f32;
    else if (size == 8) memcpy(&f64, from, 8), *f = f64;
    else if (size == 16) memcpy(f, from, LONG_DOUBLE_BYTES);
#ifdef __FLT16_MAX__
    else {
        _Float16 f16;
        memcpy(&f16, from, 2);
        *f = f16;
    }
#endif
}

static void store(const struct type *t, struct value v, unsigned char *to) {
    store_number(t->repr, t->size, v.i[0], v.f[0], to);
    if (t->offset2) store_number(t->repr2, t->size2, v.i[1], v.f[1], to + t->offset2);
}

static struct value load(const struct type *t, const unsigned char *from) {
    struct value v = {.bound = 0};
    load_number(t->repr, t->size, from, &v.i[0], &v.f[0]);
    if (t->offset2) load_number(t->repr2, t->size2, from + t->offset2, &v.i[1], &v.f[1]);
    return v;
}

/* Whether a byte of an element is data and not padding. */
static int is_data(const struct type *t, size_t at) {
    size_t first = t->repr == 'f' && t->size == 16 ? LONG_DOUBLE_BYTES : t->size;
    size_t second = t->repr2 == 'f' && t->size2 == 16 ? LONG_DOUBLE_BYTES : t->size2;
    return at < first || (t->offset2 && at >= t->offset2 && at < t->offset2 + second);
}

/* Whether a byte is padding that must stay unchanged. The padding inside a long double may change. */
static int is_padding(const struct type *t, size_t at) {
    return at >= t->size && !(t->offset2 && at >= t->offset2 && at < t->offset2 + t->size2);
}

static int has_long_double(const struct type *t) { return t->repr == 'f' && t->size == 16; }

static long double epsilon(size_t size) { return size == 2 ? 0x1p-10L : size == 4 ? 0x1p-23L : size == 8 ? 0x1p-52L : 0x1p-63L; }

/* What rank `r` contributes at `index`. */
static struct value contribution(const struct type *t, enum op op, int r, size_t index) {
    uint64_t h = mix(mix(index + 1) + (uint64_t)r * 0x9e3779b97f4a7c15u);
    struct value v = {.bound = 0};
    if (t->class == PAIR) {
        /* Few values and locations, so that ranks tie in one and in both; integers use their upper half. */
        int64_t value = (int64_t)(h % 3) - 1, location = (int64_t)(h >> 32) % 5 - 1;
        v.i[0] = (uint64_t)value * ((uint64_t)1 << (4 * t->size)), v.i[1] = (uint64_t)location;
        v.f[0] = value * 1.5L, v.f[1] = location;
    } else if (t->class == LOGICAL) {
        v.i[0] = h % 4 != 0;
    } else if (op == LAND || op == LOR || op == LXOR) {
        v.i[0] = narrow(t->repr, t->size, (h >> 32) % 4 == 0 ? 0 : h);
    } else if (t->repr != 'f') {
        v.i[0] = narrow(t->repr, t->size, h);
    } else {
        for (int part = 0; part < (t->offset2 ? 2 : 1); part++, h = mix(h)) {
            /* Products stay near 1 for any number of ranks. */
            long double x = op == PROD ? (h & 1 ? 1 : -1) * (1 + (long double)(h >> 32 & 1023) / 8192)
                                       : ((long double)(h % 2000001) - 1000000) / 1024;
            if (op == PROD && part == 1) x /= 64;
            unsigned char bytes[16];
            store_number('f', t->size, 0, x, bytes);
            load_number('f', t->size, bytes, &v.i[part], &v.f[part]);
        }
    }
    return v;
}

static int before(const struct type *t, struct value a, struct value b, int n) {
    char repr = n ? t->repr2 : t->repr;
    return repr == 'f' ? a.f[n] < b.f[n] : repr == 's' ? (int64_t)a.i[n] < (int64_t)b.i[n] : a.i[n] < b.i[n];
}

static struct value combine(const struct type *t, enum op op, struct value a, struct value b) {
    struct value r = a;
    switch (op) {
    case SUM:
        r.i[0] = a.i[0] + b.i[0], r.f[0] = a.f[0] + b.f[0], r.f[1] = a.f[1] + b.f[1];
        break;
    case PROD:
        r.i[0] = a.i[0] * b.i[0], r.f[0] = a.f[0] * b.f[0];
        if (t->class == COMPLEX) r.f[0] -= a.f[1] * b.f[1], r.f[1] = a.f[0] * b.f[1] + a.f[1] * b.f[0];
        break;
    case MAX: return before(t, a, b, 0) ? b : a;
    case MIN: return before(t, b, a, 0) ? b : a;
    case LAND: r.i[0] = a.i[0] && b.i[0]; break;
    case LOR: r.i[0] = a.i[0] || b.i[0]; break;
    case LXOR: r.i[0] = !a.i[0] != !b.i[0]; break;
    case BAND: r.i[0] &= b.i[0]; break;
    case BOR: r.i[0] |= b.i[0]; break;
    case BXOR: r.i[0] ^= b.i[0]; break;
    default: /* ties take the smaller location */
        if (before(t, a, b, 0) || before(t, b, a, 0)) return before(t, a, b, 0) == (op == MAXLOC) ? b : a;
        return before(t, b, a, 1) ? b : a;
    }
    if (t->repr != 'f') r.i[0] = narrow(t->repr, t->size, r.i[0]);
    return r;
}

static struct value expected(const struct type *t, enum op op, size_t index) {
    struct value all = contribution(t, op, 0, index);
    int rounds = t->repr == 'f' && (op == SUM || op == PROD) && np > 1;
    long double sum = fabsl(all.f[0]) + fabsl(all.f[1]);
    for (int r = 1; r < np; r++) {
        struct value v = contribution(t, op, r, index);
        sum += fabsl(v.f[0]) + fabsl(v.f[1]);
        all = combine(t, op, all, v);
    }
    if (rounds) {
        long double scale = op == SUM ? sum : hypotl(all.f[0], all.f[1]) * (t->class == COMPLEX ? 4 : 1);
        all.bound = np * epsilon(t->size) * scale;
    }
    return all;
}

static int agrees(const struct type *t, struct value want, struct value got) {
    int parts = t->offset2 ? 2 : 1;
    for (int n = 0; n < parts; n++) {
        char repr = n ? t->repr2 : t->repr;
        if (repr == 'f' ? !(fabsl(want.f[n] - got.f[n]) <= want.bound) : want.i[n] != got.i[n]) return 0;
    }
    return 1;
}

struct text { char c[80]; };

static struct text show(const struct type *t, struct value v) {
    struct text text = {""};
    for (int n = 0; n < (t->offset2 ? 2 : 1); n++) {
        size_t used = strlen(text.c);
        if ((n ? t->repr2 : t->repr) == 'f') snprintf(text.c + used, sizeof text.c - used, " %.20Lg", v.f[n]);
        else snprintf(text.c + used, sizeof text.c - used, t->repr == 'u' ? " %llu" : " %lld", (unsigned long long)v.i[n]);
    }
    return text;
}

/* Prints the first 20 errors. */
__attribute__((format(printf, 2, 3))) static int complain(const char *name, const char *format, ...) {
    static int times;
    if (times++ >= 20) return 1;
    va_list arguments;
    va_start(arguments, format);
    printf("wrong: rank %d: %s: ", rank, name);
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
    return 1;
}

/* ---- cases ---- */

struct result {
    uint64_t hash;
    uint64_t wrong;
};

struct all_cases {
    size_t n, room, plain;
    char (*names)[64];
    struct result *results;
};

static unsigned char *fresh(size_t bytes) {
    unsigned char *p = malloc(bytes);
    if (!p) MPI_Abort(MPI_COMM_WORLD, 3);
    memset(p, POISON, bytes);
    return p;
}

enum memory { HOST, DEVICE, MANAGED, MIXED, ROTATE };
static enum memory memory = HOST;

/* The memory of this rank's buffer in a case. */
static enum memory memory_of(size_t number, int which) {
    if (memory == MIXED) return (rank + number) % 2 ? HOST : DEVICE;
    if (memory == ROTATE) return (enum memory)((number / (which ? 3 : 1) + (size_t)rank) % 3);
    return memory;
}

/* Returns the address to pass to MPI: the buffer's own, or that of its copy on the GPU. */
static unsigned char *to_memory(enum memory where, unsigned char *host, size_t bytes) {
    if (where == HOST) return host;
    unsigned char *there = gpu_alloc(bytes, where == MANAGED);
    gpu_put(there, host, bytes);
    return there;
}

static void to_host(unsigned char *there, unsigned char *host, size_t bytes) {
    if (there == host) return;
    gpu_get(host, there, bytes);
    gpu_free(there);
}

/* Runs one case and returns this rank's result. */
static struct result run(const struct type *t, enum op op, int in_place, size_t count, const char *name) {
    /* Minimal alignment. */
    size_t align = t->size > 8 ? 16 : t->size > t->size2 || t->class == COMPLEX ? t->size : t->size2;
    size_t front = GUARD + align, bytes = count * t->extent, total = front + bytes + GUARD;
    unsigned char *send = fresh(total), *kept = fresh(total), *receive = fresh(total);
    memset(send + front, SEND_PADDING, bytes);
    for (size_t i = 0; i < count; i++) {
        struct value v = contribution(t, op, rank, i);
        store(t, v, send + front + i * t->extent);
        if (in_place) store(t, v, receive + front + i * t->extent);
    }
    memcpy(kept, send, total);
    struct result r = {0xcbf29ce484222325u, 0};
    static size_t number;
    unsigned char *from = to_memory(memory_of(number, 0), send, total), *to = to_memory(memory_of(number, 1), receive, total);
    number++;
    int code = MPI_Allreduce(in_place ? MPI_IN_PLACE : from + front, to + front, (int)count, t->handle, op_handle(op), MPI_COMM_WORLD);
    to_host(from, send, total), to_host(to, receive, total);
    if (code != MPI_SUCCESS) {
        char text[MPI_MAX_ERROR_STRING];
        int length;
        MPI_Error_string(code, text, &length);
        r.wrong = complain(name, "%s", text);
    }
    for (size_t i = 0; i < count && !r.wrong; i++) {
        const unsigned char *element = receive + front + i * t->extent;
        struct value want = expected(t, op, i), got = load(t, element);
        if (!agrees(t, want, got)) r.wrong = complain(name, "element %zu: expected%s, got%s", i, show(t, want).c, show(t, got).c);
        for (size_t at = 0; at < t->extent; at++) {
            if (is_data(t, at)) r.hash = (r.hash ^ element[at]) * 0x100000001b3u;
            if (is_padding(t, at) && element[at] != POISON && !r.wrong)
                r.wrong = complain(name, "the padding of element %zu was overwritten", i);
        }
    }
    for (size_t at = 0; at < total && !r.wrong; at++) {
        if (send[at] != kept[at]) r.wrong = complain(name, "byte %zd of the send buffer was overwritten", (ssize_t)at - (ssize_t)front);
        if ((at < front || at >= front + bytes) && receive[at] != POISON)
            r.wrong = complain(name, "byte %zd %s the buffer was overwritten", (ssize_t)at - (ssize_t)front, at < front ? "before" : "after");
    }
    free(send), free(kept), free(receive);
    return r;
}

static void take(struct all_cases *all, const struct type *t, enum op op, int in_place, size_t count, uint64_t sample, uint64_t seed,
                 int list) {
    if (all->n == all->room) {
        all->room = all->room ? 2 * all->room : 1024;
        all->names = realloc(all->names, all->room * sizeof *all->names);
        all->results = realloc(all->results, all->room * sizeof *all->results);
        if (!all->names || !all->results) MPI_Abort(MPI_COMM_WORLD, 3);
    }
    char *name = all->names[all->n];
    snprintf(name, sizeof *all->names, "%s %s %s %zu", t->name, OP[op].name, in_place ? "in_place" : "normal", count);
    uint64_t hash = mix(seed);
    for (const char *c = name; *c; c++) hash = mix(hash ^ (unsigned char)*c);
    if (sample > 1 && hash % sample != 0) return;
    all->results[all->n] = (struct result){0, 0};
    if (list && rank == 0) puts(name);
    if (!list) all->results[all->n] = run(t, op, in_place, count, name);
    all->plain += count > 0 && !has_long_double(t);
    all->n++;
}

/* Gathers all ranks' results; a case is wrong if any rank reports it or two ranks differ bitwise. */
static size_t count_wrong(const struct all_cases *all) {
    size_t wrong = 0;
    int words = (int)(2 * all->n);
    struct result *gathered = malloc(((size_t)np * all->n + 1) * sizeof *gathered);
    if (!gathered) MPI_Abort(MPI_COMM_WORLD, 3);
    PMPI_Allgather(all->results, words, MPI_UINT64_T, gathered, words, MPI_UINT64_T, MPI_COMM_WORLD);
    for (size_t i = 0; i < all->n; i++) {
        int bad = 0, differ = 0;
        for (int r = 0; r < np; r++) {
            bad |= gathered[(size_t)r * all->n + i].wrong != 0;
            differ |= gathered[(size_t)r * all->n + i].hash != gathered[i].hash;
        }
        if (differ && !bad && rank == 0) complain(all->names[i], "ranks differ bitwise");
        wrong += bad || differ;
    }
    free(gathered);
    return wrong;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    setvbuf(stdout, NULL, _IOLBF, 0); /* line-buffered */
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &np);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    size_t base = 1000;
    uint64_t sample = 1, seed = 0;
    int list = 0, cail = 0, brief = 0, native = 0;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--base")) base = strtoull(value, NULL, 0), i++;
        else if (!strcmp(argv[i], "--sample")) sample = strtoull(value, NULL, 0), i++;
        else if (!strcmp(argv[i], "--seed")) seed = strtoull(value, NULL, 0), i++;
        else if (!strcmp(argv[i], "--list")) list = 1;
        else if (!strcmp(argv[i], "--cail")) cail = 1;
        else if (!strcmp(argv[i], "--short")) brief = 1;
        else if (!strcmp(argv[i], "--native")) native = 1;
        else if (!strcmp(argv[i], "--memory")) {
            const char *kinds[] = {"host", "device", "managed", "mixed", "rotate"};
            int kind = 0;
            while (kind < 5 && strcmp(kinds[kind], value)) kind++;
            if (kind == 5) MPI_Abort(MPI_COMM_WORLD, 2);
            memory = (enum memory)kind, i++;
        }
        else {
            if (rank == 0) fprintf(stderr, "matrix: unknown option %s\n", argv[i]);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
    }
    if (memory != HOST) gpu_open(rank);
    if (sample > 1 && rank == 0) printf("one case of %llu, seed %llu\n", (unsigned long long)sample, (unsigned long long)seed);
    add_types();
    const size_t counts[] = {0, 1, 2, 3, base, base + 1, base + 3, (size_t)np - 1};
    struct all_cases all = {0};
    for (size_t i = 0; i < types; i++)
        for (enum op op = 0; op < OPS; op++)
            for (int in_place = 0; in_place < 2; in_place++) {
                const struct type *t = &TYPES[i];
                if (!(OP[op].classes >> t->class & 1) || (brief && !t->brief) || (native && is_native_fault(t, op))) continue;
                if (cail) {
                    if (t->cail && op <= MIN) take(&all, t, op, in_place, base, sample, seed, list);
                    continue;
                }
                for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
                    int seen = 0;
                    for (size_t d = 0; d < c; d++) seen |= counts[d] == counts[c];
                    if (!seen) take(&all, t, op, in_place, counts[c], sample, seed, list);
                }
            }
    size_t wrong = count_wrong(&all);
    if (rank == 0) {
        if (wrong) usleep(200000); /* mpirun interleaves the output of ranks */
        if (cail) printf("%zu/%zu\n", all.n - wrong, all.n);
        printf("cases %zu wrong %zu plain %zu\n", all.n, wrong, all.plain);
    }
    free(all.names), free(all.results);
    MPI_Finalize();
    if (wrong) usleep(300000); /* mpirun discards unread output when a rank fails */
    return wrong != 0;
}
