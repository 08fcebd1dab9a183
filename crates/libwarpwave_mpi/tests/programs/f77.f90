! mpi_allreduce through `use mpi`: prints "ok f77" when every sum is right.
program f77
  use mpi
  implicit none
  integer, parameter :: n = 1000
  integer :: rank, np, ierr, i, wrong, total, ia(n), ib(n), expected
  real :: ra(n), rb(n)
  double precision :: da(n), db(n)
  logical :: la(n), lb(n)
  complex :: ca(n), cb(n)
  call mpi_init(ierr)
  call mpi_comm_rank(MPI_COMM_WORLD, rank, ierr)
  call mpi_comm_size(MPI_COMM_WORLD, np, ierr)
  wrong = 0
  do i = 1, n
    ia(i) = rank * 7 + i
    ra(i) = real(ia(i))
    da(i) = dble(ia(i))
    la(i) = mod(i + rank, 2) == 0
    ca(i) = cmplx(ra(i), -ra(i))
  end do
  ib = -1; rb = -1; db = -1; lb = .false.; cb = (0.0, 0.0)
  call mpi_allreduce(ia, ib, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
  if (ierr /= MPI_SUCCESS) wrong = wrong + 1
  call mpi_allreduce(ra, rb, n, MPI_REAL, MPI_SUM, MPI_COMM_WORLD, ierr)
  call mpi_allreduce(da, db, n, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierr)
  call mpi_allreduce(la, lb, n, MPI_LOGICAL, MPI_LOR, MPI_COMM_WORLD, ierr)
  call mpi_allreduce(ca, cb, n, MPI_COMPLEX, MPI_SUM, MPI_COMM_WORLD, ierr)
  call compare
  call mpi_allreduce(MPI_IN_PLACE, ia, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
  call mpi_allreduce(MPI_IN_PLACE, ra, n, MPI_REAL, MPI_SUM, MPI_COMM_WORLD, ierr)
  call mpi_allreduce(MPI_IN_PLACE, da, n, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierr)
  call mpi_allreduce(MPI_IN_PLACE, la, n, MPI_LOGICAL, MPI_LOR, MPI_COMM_WORLD, ierr)
  call mpi_allreduce(MPI_IN_PLACE, ca, n, MPI_COMPLEX, MPI_SUM, MPI_COMM_WORLD, ierr)
  ib = ia; rb = ra; db = da; lb = la; cb = ca
  call compare
  call mpi_reduce(wrong, total, 1, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD, ierr)
  if (rank == 0 .and. total == 0) print '(a)', 'ok f77'
  if (rank == 0 .and. total /= 0) print '(a,i0)', 'wrong: ', total
  call mpi_finalize(ierr)
contains
  subroutine compare
    do i = 1, n
      expected = np * i + 7 * np * (np - 1) / 2
      if (ib(i) /= expected) wrong = wrong + 1
      if (rb(i) /= real(expected)) wrong = wrong + 1
      if (db(i) /= dble(expected)) wrong = wrong + 1
      if (lb(i) .neqv. (np > 1 .or. mod(i, 2) == 0)) wrong = wrong + 1
      if (cb(i) /= cmplx(real(expected), -real(expected))) wrong = wrong + 1
    end do
  end subroutine compare
end program f77
