//! candle's CUDA kernels, as they are, on the virtual AMD GPU, held against candle on the CPU.
//!
//! Each family is a file of `candle-kernels` from the registry, translated and compiled here. The names of its kernels come from the
//! compiled code; a plan for each is found by its name (`uexp_f32`: the exponential of `f32`). A plan runs the kernel with the shape
//! of launch that candle uses, on inputs with and without gaps, into poisoned memory with guards around it.
//!
//! Integers must be equal. Floats are held against candle's result in `f64`, within the bound that stands at each operation.
//! Without `WARPWAVE_TEST_FULL=1` a random part of each family runs.

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
    family("unary", 20, elementwise::unary);
}

#[test]
fn binary() {
    family("binary", 20, elementwise::binary);
}

#[test]
fn affine() {
    family("affine", 10, elementwise::affine);
}

#[test]
fn fill() {
    family("fill", 12, elementwise::fill);
}

#[test]
fn ternary() {
    family("ternary", 12, elementwise::ternary);
}

#[test]
fn cast() {
    family("cast", 20, elementwise::cast);
}

#[test]
fn reduce() {
    family("reduce", 20, reduce::plan);
}

#[test]
fn indexing() {
    family("indexing", 25, indexing::plan);
}

#[test]
fn sort() {
    family("sort", 6, indexing::sort);
}

#[test]
fn conv() {
    family("conv", 20, conv::plan);
}

#[test]
fn quantized() {
    family("quantized", 25, quantized::plan);
}
