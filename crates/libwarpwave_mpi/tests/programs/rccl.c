/* Mocks RCCL on the virtual GPU, whose memory the host can access, by calling the MPI library. */
#include <dlfcn.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

struct id { char bytes[128]; };
struct comm { int ranks, rank; };

int ncclGetUniqueId(struct id *id) {
    memset(id, 7, sizeof *id);
    return 0;
}

int ncclCommInitRank(struct comm **comm, int ranks, struct id id, int rank) {
    int np, me;
    MPI_Comm_size(MPI_COMM_WORLD, &np);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    /* The id must be rank 0's, and the program has one communicator. */
    if (id.bytes[0] != 7 || id.bytes[127] != 7 || np != ranks || me != rank) return 4;
    *comm = malloc(sizeof **comm);
    **comm = (struct comm){ranks, rank};
    return 0;
}

int ncclAllReduce(const void *send, void *receive, size_t count, int type, int op, struct comm *comm, void *stream) {
    const MPI_Datatype types[] = {MPI_INT8_T, MPI_UINT8_T, MPI_INT32_T, MPI_UINT32_T, MPI_INT64_T, MPI_UINT64_T, MPI_DATATYPE_NULL, MPI_FLOAT, MPI_DOUBLE};
    const MPI_Op ops[] = {MPI_SUM, MPI_PROD, MPI_MAX, MPI_MIN};
    int (*wait)(void *) = (int (*)(void *))dlsym(RTLD_DEFAULT, "hipStreamSynchronize");
    if (type > 8 || op > 3 || comm->ranks < 1 || !wait || wait(stream)) return 4;
    return PMPI_Allreduce(send == receive ? MPI_IN_PLACE : send, receive, (int)count, types[type], ops[op], MPI_COMM_WORLD);
}

int ncclCommDestroy(struct comm *comm) {
    free(comm);
    return 0;
}

const char *ncclGetErrorString(int code) {
    return code ? "refused" : "no error";
}
