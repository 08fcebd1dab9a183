//! The MPI functions that this library puts in front of the program's MPI.
