//! Buffers in host memory, with the installed MPI libraries: C and Fortran programs, compiled and run here.
//!
//! One test program, so that each of these programs is compiled once.

#[path = "../common/mod.rs"]
mod common;

mod cail;
mod fortran;
mod hosts;
mod interaction;
mod matrix;
