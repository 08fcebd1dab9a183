/* MPI_Allreduce together with other MPI features. `interaction SUBJECT` prints `ok SUBJECT`, or errors and returns 1, or `skipped: …` if
 * this MPI library lacks a feature. */
#include <dirent.h>
#include <dlfcn.h>
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, np;
static int wrong;

#define CHECK(condition, ...)                                        \
    do {                                                             \
        if (!(condition) && ++wrong <= 5) {                          \
            printf("wrong: rank %d: line %d: ", rank, __LINE__);     \
            printf(__VA_ARGS__), printf("\n");                       \
        }                                                            \
    } while (0)

/* The input of a rank; it differs between ranks and between neighboring elements. */
static double part(int r, size_t i) { return (double)((i * 31 + (size_t)r * 7919 + 1) % 100003); }

/* Sums `n` doubles over a communicator whose rank k has the input of rank `members[k]`, or of rank k if NULL. */
static void sum_over(MPI_Comm comm, const int *members, size_t n) {
    int size, own;
    MPI_Comm_size(comm, &size);
    MPI_Comm_rank(comm, &own);
    int me = members ? members[own] : own;
    double *a = malloc((n + 1) * sizeof *a), *b = malloc((n + 1) * sizeof *b);
    for (size_t i = 0; i < n; i++) a[i] = part(me, i), b[i] = -1;
    b[n] = 12345;
    int code = MPI_Allreduce(a, b, (int)n, MPI_DOUBLE, MPI_SUM, comm);
    CHECK(code == MPI_SUCCESS, "code %d", code);
    for (size_t i = 0; i < n; i++) {
        double want = 0;
        for (int r = 0; r < size; r++) want += part(members ? members[r] : r, i);
        CHECK(b[i] == want, "element %zu of %zu over %d ranks: expected %g, got %g", i, n, size, want, b[i]);
        if (b[i] != want) break;
    }
    CHECK(b[n] == 12345, "the byte after the buffer was overwritten");
    free(a), free(b);
}

static void sum(MPI_Comm comm, size_t n) { sum_over(comm, NULL, n); }

/* A pending wildcard receive on the program's communicator must match only the program's messages. */
static void wildcard(void) {
    for (int round = 0; round < 20; round++) {
        int got[4] = {0};
        MPI_Request request;
        MPI_Status status;
        MPI_Irecv(got, 4, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &request);
        const size_t sizes[] = {1, 5, 1000, 50000};
        for (size_t i = 0; i < 4; i++) sum(MPI_COMM_WORLD, sizes[i]);
        int done = 1, to = (rank + 1) % np, from = (rank + np - 1) % np;
        MPI_Test(&request, &done, &status);
        /* A neighbor that is ahead may have sent already; the message must be its own. */
        int message[4] = {rank, round, 42, -7};
        MPI_Send(message, 4, MPI_INT, to, 17, MPI_COMM_WORLD);
        if (!done) MPI_Wait(&request, &status);
        int count;
        MPI_Get_count(&status, MPI_INT, &count);
        CHECK(count == 4 && status.MPI_TAG == 17 && status.MPI_SOURCE == from, "%d from %d, tag %d", count, status.MPI_SOURCE, status.MPI_TAG);
        CHECK(got[0] == from && got[1] == round && got[2] == 42 && got[3] == -7, "the message is %d %d", got[0], got[1]);
        int waiting = 1;
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &waiting, &status);
        CHECK(!waiting, "unexpected message, tag %d", status.MPI_TAG);
    }
}

static void split(void) {
    int *members = malloc((size_t)np * sizeof *members);
    for (int round = 0; round < 10; round++) {
        MPI_Comm half, reverse, copy, some;
        int n = 0;
        for (int r = 0; r < np; r++)
            if (r % 2 == rank % 2) members[n++] = r;
        MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
        sum_over(half, members, 100);
        MPI_Comm_dup(half, &copy);
        MPI_Comm_free(&half);
        sum_over(copy, members, 2000);
        MPI_Comm_free(&copy);
        for (int r = 0; r < np; r++) members[r] = np - 1 - r;
        MPI_Comm_split(MPI_COMM_WORLD, 0, np - rank, &reverse);
        sum_over(reverse, members, 3000);
        sum(MPI_COMM_WORLD, 7);
        sum_over(reverse, members, 1);
        MPI_Comm_free(&reverse);
        /* One rank stays out. */
        MPI_Comm_split(MPI_COMM_WORLD, rank == np - 1 ? MPI_UNDEFINED : 1, rank, &some);
        CHECK((some == MPI_COMM_NULL) == (rank == np - 1), "the communicator of some ranks");
        if (some != MPI_COMM_NULL) sum(some, 1234), MPI_Comm_free(&some);
        members[0] = rank;
        sum_over(MPI_COMM_SELF, members, 500);
        sum(MPI_COMM_WORLD, 1000);
    }
    free(members);
}

/* An intercommunicator: each group gets the other group's sum. */
static void inter(void) {
    if (np < 2) { printf("skipped: needs two ranks\n"); return; }
    MPI_Comm own, both;
    int lower = rank < np / 2;
    MPI_Comm_split(MPI_COMM_WORLD, lower, rank, &own);
    MPI_Intercomm_create(own, 0, MPI_COMM_WORLD, lower ? np / 2 : 0, 5, &both);
    int a[100], b[100];
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < 100; i++) a[i] = rank * 1000 + i + round, b[i] = -1;
        MPI_Allreduce(a, b, 100, MPI_INT, MPI_SUM, both);
        for (int i = 0; i < 100; i++) {
            int want = 0;
            for (int r = lower ? np / 2 : 0; r < (lower ? np : np / 2); r++) want += r * 1000 + i + round;
            CHECK(b[i] == want, "element %d: expected %d, got %d", i, want, b[i]);
        }
        sum(own, 50);
        sum(MPI_COMM_WORLD, 50);
    }
    MPI_Comm_free(&both);
    MPI_Comm_free(&own);
}

static void *thread_main(void *argument) {
    MPI_Comm comm = *(MPI_Comm *)argument;
    const size_t sizes[] = {1, 64, 1000, 9000};
    for (int i = 0; i < 200; i++) sum(comm, sizes[i % 4]);
    return NULL;
}

static void threads(int provided) {
    if (provided < MPI_THREAD_MULTIPLE) { printf("skipped: this MPI has no MPI_THREAD_MULTIPLE\n"); return; }
    enum { N = 4 };
    MPI_Comm comms[N];
    pthread_t ids[N];
    for (int i = 0; i < N; i++) MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    for (int i = 0; i < N; i++) pthread_create(&ids[i], NULL, thread_main, &comms[i]);
    for (int i = 0; i < N; i++) pthread_join(ids[i], NULL);
    for (int i = 0; i < N; i++) MPI_Comm_free(&comms[i]);
}

static void comms(void) {
    enum { N = 1000 };
    MPI_Comm *all = malloc(N * sizeof *all);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < N; i++) MPI_Comm_dup(MPI_COMM_WORLD, &all[i]);
        for (int i = 0; i < N; i++) sum(all[i], (size_t)i % 50 + 1);
        for (int i = 0; i < N; i++) MPI_Comm_free(&all[round ? N - 1 - i : i]);
        sum(MPI_COMM_WORLD, 10);
    }
    free(all);
}

static int class_of(int code) {
    int class = -1;
    MPI_Error_class(code, &class);
    return class;
}

/* What is an error without an interposer is the same error with one. */
static void errors(void) {
    int a[4] = {1, 2, 3, 4}, b[4] = {0};
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
#define SAME(...)                                                                                         \
    do {                                                                                                  \
        int ours = class_of(MPI_Allreduce(__VA_ARGS__)), native = class_of(PMPI_Allreduce(__VA_ARGS__));  \
        CHECK(ours == native, "class %d, natively %d", ours, native);                                     \
        CHECK(ours != MPI_SUCCESS, "no error");                                                           \
        sum(comm, 10);                                                                                    \
    } while (0)
    for (int round = 0; round < 3; round++) {
#ifdef OPEN_MPI /* MPICH 4.0 does not look at the count and crashes */
        SAME(a, b, -1, MPI_INT, MPI_SUM, comm);
#endif
        SAME(a, b, 4, MPI_DOUBLE, MPI_BAND, comm);
        SAME(a, b, 1, MPI_DOUBLE_INT, MPI_SUM, comm);
        SAME(a, b, 4, MPI_DATATYPE_NULL, MPI_SUM, comm);
        SAME(a, b, 4, MPI_INT, MPI_OP_NULL, comm);
        SAME(MPI_IN_PLACE, MPI_IN_PLACE, 4, MPI_INT, MPI_SUM, comm);
        SAME(a, a, 4, MPI_INT, MPI_SUM, comm);
        SAME(a, b, 4, MPI_INT, MPI_SUM, MPI_COMM_NULL);
    }
    MPI_Comm_free(&comm);
    sum(MPI_COMM_WORLD, 1000);
}

static void zero(void) {
    int kept = 77;
    for (int round = 0; round < 50; round++) {
        CHECK(MPI_Allreduce(NULL, NULL, 0, MPI_INT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS, "NULL and NULL");
        CHECK(MPI_Allreduce(MPI_IN_PLACE, NULL, 0, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD) == MPI_SUCCESS, "in place, NULL");
        CHECK(MPI_Allreduce(&rank, &kept, 0, MPI_INT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS && kept == 77, "two buffers");
        CHECK(MPI_Allreduce(NULL, NULL, 0, MPI_DOUBLE_INT, MPI_MINLOC, MPI_COMM_SELF) == MPI_SUCCESS, "alone");
        sum(MPI_COMM_WORLD, 3);
    }
}

/* More than 2^31 bytes in a call; in place, to fit into small machines. */
static void large(void) {
    const size_t n = ((size_t)1 << 28) + 3;
    double *a = malloc(n * sizeof *a);
    if (!a) { printf("skipped: no memory\n"); return; }
    for (size_t i = 0; i < n; i++) a[i] = part(rank, i);
    CHECK(MPI_Allreduce(MPI_IN_PLACE, a, (int)n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS, "the call");
    size_t bad = 0, first = 0;
    for (size_t i = 0; i < n; i++) {
        double want = 0;
        for (int r = 0; r < np; r++) want += part(r, i);
        if (a[i] != want && !bad++) first = i;
    }
    CHECK(bad == 0, "%zu of %zu elements, the first at %zu", bad, n, first);
    free(a);
}

struct matrix { int32_t a[2][2]; };

/* Matrix product: not commutative. Integers wrap. */
static struct matrix times(struct matrix l, struct matrix r) {
    struct matrix p;
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++)
            p.a[i][j] = (int32_t)((uint32_t)l.a[i][0] * (uint32_t)r.a[0][j] + (uint32_t)l.a[i][1] * (uint32_t)r.a[1][j]);
    return p;
}

static void multiply(void *in, void *inout, int *n, MPI_Datatype *type) {
    (void)type;
    struct matrix *a = in, *b = inout;
    for (int i = 0; i < *n; i++) b[i] = times(a[i], b[i]);
}

static void greater_by_seven(void *in, void *inout, int *n, MPI_Datatype *type) {
    (void)type;
    for (int i = 0; i < *n; i++) {
        int a = ((int *)in)[i], *b = &((int *)inout)[i];
        if (a % 7 > *b % 7 || (a % 7 == *b % 7 && a > *b)) *b = a;
    }
}

static struct matrix matrix_of(int r, int i) { return (struct matrix){{{r + 1, i}, {1, r * i + 2}}}; }

static void userop(void) {
    enum { N = 300 };
    MPI_Datatype matrix, every_second, three;
    MPI_Op product, seven;
    MPI_Type_contiguous(4, MPI_INT32_T, &matrix);
    MPI_Type_vector(2, 1, 2, MPI_INT, &every_second);
    MPI_Type_contiguous(3, MPI_INT, &three);
    MPI_Type_commit(&matrix), MPI_Type_commit(&every_second), MPI_Type_commit(&three);
    MPI_Op_create(multiply, 0, &product);
    MPI_Op_create(greater_by_seven, 1, &seven);
    static struct matrix a[N], b[N];
    int x[N], y[N];
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < N; i++) a[i] = matrix_of(rank, i + round), x[i] = (rank * 37 + i * 11 + round) % 1000;
        MPI_Allreduce(a, b, N, matrix, product, MPI_COMM_WORLD);
        MPI_Allreduce(x, y, N, MPI_INT, seven, MPI_COMM_WORLD);
        MPI_Allreduce(MPI_IN_PLACE, a, N, matrix, product, MPI_COMM_WORLD);
        for (int i = 0; i < N; i++) {
            struct matrix want = matrix_of(0, i + round);
            int best = (i * 11 + round) % 1000;
            for (int r = 1; r < np; r++) {
                want = times(want, matrix_of(r, i + round));
                int other = (r * 37 + i * 11 + round) % 1000, n = 1;
                greater_by_seven(&other, &best, &n, NULL);
            }
            CHECK(!memcmp(&want, &b[i], sizeof want), "product %d: expected %d, got %d", i, want.a[0][0], b[i].a[0][0]);
            CHECK(!memcmp(&want, &a[i], sizeof want), "product %d in place", i);
            CHECK(y[i] == best, "maximum %d: expected %d, got %d", i, best, y[i]);
        }
    }
    /* The standard has no sum of derived datatypes; the result must be that of the MPI library. */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int i = 0; i < 2; i++) {
        MPI_Datatype type = i ? three : every_second;
        int ours = class_of(MPI_Allreduce(x, y, 2, type, MPI_SUM, MPI_COMM_WORLD));
        int native = class_of(PMPI_Allreduce(x, y, 2, type, MPI_SUM, MPI_COMM_WORLD));
        CHECK(ours == native, "a sum of a derived type: class %d, natively %d", ours, native);
    }
    /* Operators and datatypes are freed independently. */
    MPI_Op_free(&product), MPI_Op_free(&seven);
    MPI_Type_free(&matrix), MPI_Type_free(&every_second), MPI_Type_free(&three);
    sum(MPI_COMM_WORLD, 100);
}

static long resident(void) {
    long pages = 0, all = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%ld %ld", &all, &pages) != 2) pages = 0;
    if (f) fclose(f);
    return pages * sysconf(_SC_PAGESIZE);
}

static int descriptors(void) {
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n;
}

static void many(int calls, int dups) {
    const int sizes[] = {1, 17, 300, 2048};
    static double a[2048], b[2048];
    for (int i = 0; i < calls; i++) {
        a[0] = part(rank, (size_t)i);
        MPI_Allreduce(a, b, sizes[i % 4], MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        double want = 0;
        for (int r = 0; r < np; r++) want += part(r, (size_t)i);
        CHECK(b[0] == want, "call %d", i);
    }
    for (int i = 0; i < dups; i++) {
        MPI_Comm copy;
        MPI_Comm_dup(MPI_COMM_WORLD, &copy);
        sum(copy, 100);
        MPI_Comm_free(&copy);
    }
}

/* `leak N` makes N calls and N/100 communicators, after a tenth of both to warm up. */
static void leak(int calls) {
    many(calls / 10, calls / 1000);
    long bytes = resident();
    int files = descriptors();
    many(calls, calls / 100);
    long grown = resident() - bytes;
    CHECK(grown <= 4 << 20, "%ld KiB more than before", grown >> 10);
    CHECK(descriptors() <= files, "%d descriptors, before %d", descriptors(), files);
    if (rank == 0) printf("%d calls, %d communicators: %ld KiB more\n", calls, calls / 100, grown >> 10);
}

/* Rank 1 is killed; the launcher must terminate the others. */
static void killed(void) {
    for (int i = 0; i < 1000; i++) {
        if (rank == 1 && i == 500) raise(SIGKILL);
        sum(MPI_COMM_WORLD, 1000);
    }
}

/* The program finalizes with communicators that it never freed. */
static void finalize(void) {
    MPI_Comm comms[20];
    for (int i = 0; i < 20; i++) {
        if (i % 2) MPI_Comm_split(MPI_COMM_WORLD, 0, rank, &comms[i]);
        else MPI_Comm_dup(i ? comms[i - 1] : MPI_COMM_WORLD, &comms[i]);
        sum(comms[i], 1000);
    }
}

/* Nonblocking, persistent and large-count calls, if this MPI library has them. */
static void iallreduce(void) {
    enum { N = 3000, AT_ONCE = 4 };
    static double a[AT_ONCE][N], b[AT_ONCE][N];
    MPI_Request requests[AT_ONCE];
#define FILL() for (int k = 0; k < AT_ONCE; k++) for (int i = 0; i < N; i++) a[k][i] = part(rank, (size_t)(i + k)), b[k][i] = -1
#define LOOK(what)                                                                                           \
    for (int k = 0; k < AT_ONCE; k++) for (int i = 0; i < N; i++) {                                          \
        double want = 0;                                                                                     \
        for (int r = 0; r < np; r++) want += part(r, (size_t)(i + k));                                       \
        CHECK(b[k][i] == want, "%s: element %d of call %d: expected %g, got %g", what, i, k, want, b[k][i]);     \
    }
    for (int round = 0; round < 10; round++) {
        FILL();
        for (int k = 0; k < AT_ONCE; k++) MPI_Iallreduce(a[k], b[k], N, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &requests[k]);
        sum(MPI_COMM_WORLD, 500);
        for (int k = 0; k < AT_ONCE; k++) MPI_Wait(&requests[k], MPI_STATUS_IGNORE);
        LOOK("MPI_Iallreduce");
    }
    int (*init)(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Info, MPI_Request *);
    int (*big)(const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm);
    /* The interposer exports functions that the MPI library may lack; the PMPI_ symbol shows whether it has them. */
    *(void **)&init = dlsym(RTLD_DEFAULT, "PMPI_Allreduce_init") ? dlsym(RTLD_DEFAULT, "MPI_Allreduce_init") : NULL;
    *(void **)&big = dlsym(RTLD_DEFAULT, "PMPI_Allreduce_c") ? dlsym(RTLD_DEFAULT, "MPI_Allreduce_c") : NULL;
    if (rank == 0) printf("MPI_Allreduce_init: %s, MPI_Allreduce_c: %s\n", init ? "yes" : "no", big ? "yes" : "no");
    if (init) {
        for (int k = 0; k < AT_ONCE; k++)
            CHECK(init(a[k], b[k], N, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[k]) == MPI_SUCCESS, "init %d", k);
        for (int round = 0; round < 5; round++) {
            FILL();
            for (int k = 0; k < AT_ONCE; k++) MPI_Start(&requests[k]);
            sum(MPI_COMM_WORLD, 700);
            for (int k = 0; k < AT_ONCE; k++) MPI_Wait(&requests[k], MPI_STATUS_IGNORE);
            LOOK("MPI_Allreduce_init");
        }
        for (int k = 0; k < AT_ONCE; k++) MPI_Request_free(&requests[k]);
    }
    if (big) {
        FILL();
        for (int k = 0; k < AT_ONCE; k++) CHECK(big(a[k], b[k], N, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS, "call %d", k);
        LOOK("MPI_Allreduce_c");
    }
}

/* A GPU driver library without devices is loaded, as network libraries do: nothing changes. */
static void driver(void) {
    sum(MPI_COMM_WORLD, 5000);
    const char *names[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libcuda.so.1"};
    int found = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) found += dlopen(names[i], RTLD_NOW | RTLD_GLOBAL) != NULL;
    if (rank == 0) printf("%d drivers\n", found);
    sum(MPI_COMM_WORLD, 5000);
    iallreduce();
}

int main(int argc, char **argv) {
    const char *subject = argc > 1 ? argv[1] : "";
    int provided, all;
    setvbuf(stdout, NULL, _IOLBF, 0); /* line-buffered */
    MPI_Init_thread(&argc, &argv, strcmp(subject, "threads") ? MPI_THREAD_SINGLE : MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &np);
    const struct { const char *name; void (*run)(void); } subjects[] = {
        {"wildcard", wildcard}, {"split", split}, {"inter", inter}, {"comms", comms}, {"errors", errors}, {"zero", zero},
        {"large", large}, {"userop", userop}, {"killed", killed}, {"finalize", finalize}, {"iallreduce", iallreduce},
        {"driver", driver},
    };
    int known = 0;
    for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++)
        if (!strcmp(subject, subjects[i].name)) known = 1, subjects[i].run();
    if (!strcmp(subject, "threads")) known = 1, threads(provided);
    if (!strcmp(subject, "leak")) known = 1, leak(argc > 2 ? atoi(argv[2]) : 100000);
    if (!known) MPI_Abort(MPI_COMM_WORLD, 2);
    PMPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0 && all == 0) printf("ok %s\n", subject);
    MPI_Finalize();
    if (all) usleep(300000); /* mpirun discards unread output when a rank fails */
    return all != 0;
}
