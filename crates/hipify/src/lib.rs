//! CUDA C++ to HIP, with no CUDA install and no clang.
//!
//! The source is read into tokens ([`lex`]), changes are collected as [`edit`]s of spans, and what could not be done is told in
//! numbered [`diagnostic`]s. Every byte that is not changed stays as it was.
#![warn(missing_docs)]

pub mod diagnostic;
pub mod edit;
pub mod kernels;
pub mod lex;
