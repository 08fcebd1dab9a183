//! The CPU backend, and its `f32` operations on slices.
//!
//! The functions here check sizes by panicking: a slice of another size than the arguments say is a bug of the caller. Nothing else
//! panics, whatever the values are. Work is shared by [`threads`] threads. Kernels are written once, over vectors of 16 lanes, and run
//! with AVX-512, AVX2 or portable Rust, whichever the processor has ([`Isa`]).

mod attention;
mod backend;
mod cache_codes;
mod conv;
mod dense_attention;
mod elementwise;
mod gemm;
mod group_norm;
mod image;
mod index;
mod interleaved;
mod math;
mod matmul;
mod matmul_f32;
mod matmul_i15;
mod moe;
mod ops;
mod pool;
mod quant;
mod random;
mod reduce;
mod simd;
mod sort;
mod values;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use attention::{AttentionExtras, Cache, CacheMut, Heads, Sequence, append, attention, attention_with};
pub(crate) use backend::Cpu;
pub use cache_codes::Codes;
pub use interleaved::Interleaved;
pub use matmul::{Matrix, Precision, embedding, matmul};
pub use ops::{add, argmax, glu, glu_rows, log_sum_exp, rms_norm, rms_norm_in_place, rope, rope_tables, scale, soft_cap, softmax};
pub use pool::{set_threads, threads, with_threads};
pub use quant::{dequantize, quantize};
pub use simd::Isa;
