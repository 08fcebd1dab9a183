//! Tensor operations on device memory, written once in CUDA C++ for NVIDIA and AMD.
//!
//! [`Kernels`] belongs to a device and compiles kernels on first use. A [`View`] is memory with a [`DType`] and a [`Layout`]; operations
//! read views and write a [`ViewMut`]. The CUDA files are in `src`, in folders by family, next to their launchers; each includes what
//! it needs and compiles alone.
//!
//! What this crate guarantees: types, shapes, strides, bounds, alignment, overlap and devices are checked before a launch, and a
//! rejected call has written nothing. Work is queued on a stream and the call returns; empty views launch nothing.
//! What it leaves to the caller: the order of work on different streams.
//!
//! [`compile_archive`] compiles what models load on a target ahead of time, for machines without a compiler; a `Jit` finds its archives.
//!
//! Semantics:
//! - f16, bf16 and fp8 are computed in f32 and rounded once, to nearest even; their transcendental functions are only as accurate as this
//!   rounding needs. Stores to fp8 saturate, infinities too; copies and [`Kernels::where_cond`] keep the bits.
//! - Integers wrap; integer division by zero yields 0.
//! - Maximum and minimum propagate NaN. The sign of NaN is 0.
//! - [`Unary::Round`] rounds halves away from zero.
//! - Attention on matrix units rounds its weights to the type of the values.
//! - Floats are accumulated in f32, f64 in f64, in a fixed order: results are reproducible.
//!   Of equal elements the first index wins, and NaN precedes all numbers ([`Reduce`]).
//! - Out-of-range indices, including negative ones, read 0 and write nothing. Of equal indices [`Kernels::scatter`] keeps the last;
//!   [`Kernels::scatter_add`] adds in order and rounds once.
//! - Random elements depend on a [`Philox`] position and their index only, and have the same bits on every device.
//! - When sorting, NaN is the largest, both zeros are equal, and sorting is stable.
//! - Dequantized weights are exact in f32 but for one rounding. Their products with float activations ([`ActivationPrecision::F32`]) are
//!   computed in f32; [`ActivationPrecision::Int16`] allows rounding activations to 16 bits, [`ActivationPrecision::Float16`] products of
//!   16-bit floats on matrix units, [`ActivationPrecision::Int8`] quantizes activations to [`Quant::Q8_1`] first.
//! - Float-to-integer casts truncate and saturate, and NaN becomes 0; integer casts wrap.
//!
//! ```no_run
//! use warpwave_gpu::{Devices, DeviceSpec, Selection};
//! use warpwave_jit::Jit;
//! use warpwave_kernels::{Kernels, Layout, Unary, View, ViewMut};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let Selection::Gpu(device) = Devices::hardware().select(&DeviceSpec::Auto)? else { return Ok(()) };
//! let (kernels, stream) = (Kernels::new(&device, &Jit::default()), device.stream()?);
//! let input = stream.upload(&[1.0f32, 2.0, 3.0, 4.0])?;
//! let mut result = stream.alloc::<f32>(4)?;
//! // A transposed view of a 2 × 2 matrix.
//! let transposed = Layout::contiguous(&[2, 2])?.transpose(0, 1)?;
//! let mut out = ViewMut::new(&mut result, Layout::contiguous(&[2, 2])?)?;
//! kernels.unary(&stream, Unary::Exp, &View::new(&input, transposed)?, &mut out)?;
//! # Ok(())
//! # }
//! ```
#![warn(missing_docs)]

mod attention;
mod common;
mod conv;
mod dtype;
mod elementwise;
mod error;
mod histogram;
mod image;
mod index;
mod kernels;
mod layout;
mod matmul;
mod moe;
mod norm;
mod precompiled;
mod program;
mod quant;
mod random;
mod reduce;
mod rope;
mod sample;
mod sort;
mod tune;
mod tuning;
mod view;

pub use attention::Varlen;
pub use attention::append::CachePositions;
pub use attention::options::{AttentionOptions, CacheCodes, CacheScales, CacheScalesMut, KeyValues, Window};
pub use conv::Conv;
pub use dtype::{DType, Element, ParseDTypeError, Scalar};
pub use elementwise::glu::Glu;
pub use elementwise::{Binary, Unary};
pub use error::{Error, Result};
pub use image::{PadMode, Pool};
pub use kernels::Kernels;
pub use layout::{Layout, MAX_DIMS};
pub use matmul::{Activation, Matmul, MatmulBackend};
pub use moe::{ExpertScore, ExpertTiles, ExpertWeights, Routing};
pub use norm::Norm;
pub use precompiled::{ArchiveFailure, ArchiveProgress, add_programs, compile_archive, programs_for};
pub use program::programs;
pub use quant::ActivationPrecision;
pub use quant::view::{Quant, QuantView, QuantViewMut};
pub use random::{Distribution, Draw, Philox};
pub use reduce::Reduce;
pub use rope::{Positions, Rope, RopeAngles, RopePairs, RopeScaling};
pub use sample::{Penalties, RandomSource, Sampling};
pub use tune::{Trial, tune};
pub use tuning::{Tuning, TuningParam};
pub use view::{View, ViewMut};
