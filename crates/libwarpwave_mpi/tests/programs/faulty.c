/* An interposer with the fault that FAULT names, to check that the test program detects it. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

int MPI_Allreduce(const void *send, void *receive, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    const char *fault = getenv("FAULT");
    int code = PMPI_Allreduce(send, receive, count, type, op, comm), rank;
    MPI_Aint lower, extent;
    PMPI_Comm_rank(comm, &rank);
    PMPI_Type_get_extent(type, &lower, &extent);
    unsigned char *bytes = receive, *end = bytes + (MPI_Aint)count * extent;
    if (!fault || count == 0) return code;
    if (!strcmp(fault, "last") && rank == 1) end[-extent] ^= 64;
    if (!strcmp(fault, "swapped") && count > 3 && type == MPI_INT) memmove(bytes, bytes + extent, (size_t)extent);
    if (!strcmp(fault, "behind") && rank == 0) *end = 0;
    if (!strcmp(fault, "before") && rank == 1) bytes[-1] = 0;
    if (!strcmp(fault, "send") && send != MPI_IN_PLACE) *(unsigned char *)send ^= 1;
    if (!strcmp(fault, "padding") && type == MPI_DOUBLE_INT) bytes[12] = 0;
    if (!strcmp(fault, "bit") && type == MPI_DOUBLE && op == MPI_SUM && rank == 0) bytes[0] ^= 1;
    if (!strcmp(fault, "error") && type == MPI_INT) code = MPI_ERR_OTHER;
    return code;
}
