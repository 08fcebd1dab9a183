//! candle's CUDA kernels, as they are, on the virtual AMD GPU, held against candle on the CPU.
//!
//! Each family is a file of `candle-kernels` from the registry, translated and compiled here. The names of its kernels come from the
//! compiled code; a plan for each is found by its name (`uexp_f32`: the exponential of `f32`). A plan runs the kernel with the shape
//! of launch that candle uses, on inputs with and without gaps, into poisoned memory with guards around it.
//!
//! Integers must be equal. Floats are held against candle's result in `f64`, within the bound that stands at each operation.
//!
//! `WARPWAVE_TEST_FULL=1` repeats it with other numbers, and on the other virtual GPUs; `WARPWAVE_TEST_KERNEL=uexp` runs the kernels with
//! that in their name; `WARPWAVE_TEST_SEED` repeats a run. Without clang, or without candle's sources, tests are skipped and say so.

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
