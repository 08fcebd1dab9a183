! MPI_Allreduce through `use mpi_f08`, with and without the last argument: prints "ok f08" when every sum is right.
program f08
  use mpi_f08
  implicit none
  integer, parameter :: n = 1000
  integer :: rank, np, ierr, i, wrong, total, expected
  integer :: ia(n), ib(n)
  double precision :: da(n), db(n)
  complex :: ca(n)
  type(MPI_Comm) :: reverse
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, np)
  call MPI_Comm_split(MPI_COMM_WORLD, 0, np - rank, reverse)
  wrong = 0
  do i = 1, n
    ia(i) = rank * 7 + i
    da(i) = dble(ia(i))
    ca(i) = cmplx(real(ia(i)), 1.0)
  end do
  ib = -1; db = -1
  call MPI_Allreduce(ia, ib, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
  call MPI_Allreduce(da, db, n, MPI_DOUBLE_PRECISION, MPI_SUM, reverse, ierr)
  if (ierr /= MPI_SUCCESS) wrong = wrong + 1
  call MPI_Allreduce(MPI_IN_PLACE, ia, n, MPI_INTEGER, MPI_SUM, reverse)
  call MPI_Allreduce(MPI_IN_PLACE, ca, n, MPI_COMPLEX, MPI_SUM, MPI_COMM_WORLD, ierr)
  do i = 1, n
    expected = np * i + 7 * np * (np - 1) / 2
    if (ia(i) /= expected .or. ib(i) /= expected) wrong = wrong + 1
    if (db(i) /= dble(expected)) wrong = wrong + 1
    if (ca(i) /= cmplx(real(expected), real(np))) wrong = wrong + 1
  end do
  call MPI_Comm_free(reverse)
  call MPI_Reduce(wrong, total, 1, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD)
  if (rank == 0 .and. total == 0) print '(a)', 'ok f08'
  if (rank == 0 .and. total /= 0) print '(a,i0)', 'wrong: ', total
  call MPI_Finalize()
end program f08
