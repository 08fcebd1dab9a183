//! The CPU's operations on slices, with every instruction set and thread count, against `f64` references.

mod attention;
mod common;
mod matmul;
mod ops;
mod quant;
