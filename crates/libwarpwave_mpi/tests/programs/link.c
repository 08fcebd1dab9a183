/* Linked with -lwarpwave_mpi before the MPI: no preload needed. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv) {
    int rank, np, wrong = 0, all = 0;
    static int a[5000], b[5000];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &np);
    for (int i = 0; i < 5000; i++) a[i] = rank * 3 + i;
    MPI_Allreduce(a, b, 5000, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < 5000; i++) wrong += b[i] != np * i + 3 * np * (np - 1) / 2;
    PMPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0 && all == 0) printf("ok link\n");
    MPI_Finalize();
    return all != 0;
}
