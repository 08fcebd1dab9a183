//! Operations on slices, for processors without a GPU beside them.
//!
//! Sizes are the caller's to check: a slice of another size than the arguments say panics. Nothing else does, whatever the numbers are.
//! Work is shared by [`threads`] threads. Kernels are written once, over vectors of 16 lanes, and run with AVX-512, AVX2 or plain Rust,
//! whichever the processor has ([`Path`]).

mod attention;
mod exact;
mod math;
mod matmul;
mod ops;
mod packed;
mod pool;
mod quant;
mod rounded;
mod simd;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use attention::{Cache, CacheMut, Heads, Sequence, append, attention};
pub use matmul::{Matrix, Precision, matmul, rows};
pub use ops::{
    Gate, Pairs, add, argmax, glu, glu_rows, log_sum_exp, rms_norm, rms_norm_in_place, rope, rope_tables, scale, soft_cap, softmax,
};
pub use packed::Packed;
pub use pool::{set_threads, threads, with_threads};
pub use quant::{dequantise, quantise};
pub use simd::Path;
