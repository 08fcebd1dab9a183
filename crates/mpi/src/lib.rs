//! `MPI_Allreduce` over any MPI and any GPU: what `libwarpwave_mpi.so` does, without its exported names.
//!
//! Nothing links to an MPI. The library of the program is found at run time, its handles are told apart by [`abi`], and whatever is
//! not handled here goes to it unchanged.
//!
//! | room | what it promises |
//! |---|---|
//! | [`element`] | types and operations, apart from any MPI's names for them |
//! | [`gpu`] | where a buffer lies, and copies and operations in device memory |
//! | [`schedule`] | the algorithms as data: who sends which range to whom |

pub mod element;
pub mod gpu;
pub mod schedule;
