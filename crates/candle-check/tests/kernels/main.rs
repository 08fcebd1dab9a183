//! Runs candle's unmodified CUDA kernels on the virtual AMD GPU and compares the results with candle on the CPU.
//!
//! Each family is a file of `candle-kernels` from the registry, translated and compiled here. Kernel names come from the compiled code, and
//! each name selects a plan (`uexp_f32`: exponential of `f32`). A plan launches the kernel as candle does, on contiguous and strided
//! inputs, into poisoned memory with guards around it.
//!
//! Integers must be equal. Floats are compared with candle's result in `f64`, within a bound stated at each operation.
//!
//! `WARPWAVE_TEST_FULL=1` repeats the tests with other values and on the other virtual GPUs; `WARPWAVE_TEST_KERNEL=uexp` runs only kernels
//! whose name contains it; `WARPWAVE_SEED` repeats a run. Without clang or candle's sources the tests are skipped with a message.

mod bench;
mod conv;
mod elementwise;
mod indexing;
mod quantized;
mod reduce;
mod types;

use bench::family;

#[test]
fn unary() {
    family("unary", elementwise::unary);
}

#[test]
fn binary() {
    family("binary", elementwise::binary);
}

#[test]
fn affine() {
    family("affine", elementwise::affine);
}

#[test]
fn fill() {
    family("fill", elementwise::fill);
}

#[test]
fn ternary() {
    family("ternary", elementwise::ternary);
}

#[test]
fn cast() {
    family("cast", elementwise::cast);
}

#[test]
fn reduce() {
    family("reduce", reduce::plan);
}

#[test]
fn indexing() {
    family("indexing", indexing::plan);
}

#[test]
fn sort() {
    family("sort", indexing::sort);
}

#[test]
fn conv() {
    family("conv", conv::plan);
}

#[test]
fn quantized() {
    family("quantized", quantized::plan);
}
