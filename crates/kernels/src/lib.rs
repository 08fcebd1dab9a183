//! Operations on device memory, written once in CUDA C++ for NVIDIA and AMD.
//!
//! [`Kernels`] belongs to a device and compiles what is asked of it when it is first asked. A [`View`] is memory with a [`DType`] and
//! a [`Layout`]; operations read views and write a [`ViewMut`] of the same shape.
//!
//! What this crate promises: types, shapes, strides, bounds, alignment, overlap and devices are checked before anything is launched,
//! and what is refused has written nothing. Work is queued on a stream and the call returns; views of no elements launch nothing.
//! What it leaves to the caller: the order of work on different streams.
//!
//! What the operations compute:
//! - f16, bf16 and fp8 are computed with as f32 and rounded once, to nearest even; their exponentials, powers and the like with the digits
//!   that this rounding keeps. What is stored as fp8 saturates, infinities too;
//!   what is only moved (copies, [`Kernels::where_cond`]) keeps its bits.
//! - Whole numbers wrap. Divided by zero they are 0.
//! - The larger or smaller of a number and NaN is NaN. The sign of NaN is 0.
//! - [`Unary::Round`] takes halves away from zero.
//! - Attention on matrix units rounds its weights to the type of the values.
//! - Sums of floats are made in f32, those of f64 in f64, always in the same order: a call repeated gives the same bits.
//!   Of equals the first index counts, and NaN comes before all numbers ([`Reduce`]).
//! - An index that is none, negative or beyond its dimension, reads 0 and writes nothing. Of equal indices the last in order is the one
//!   that [`Kernels::scatter`] leaves; [`Kernels::scatter_add`] adds in their order, and rounds once.
//! - In order NaN is the greatest, both zeros are equal, and what is equal stays in its order: the lower index comes first.
//! - What quantised weights stand for is exact in f32, but for one rounding. Their products with floats ([`Activations::Exact`]) are computed
//!   in f32; with [`Activations::Rounded`] the vectors may be rounded to 15 bits, with [`Activations::Int8`] to [`Quant::Q8_1`] first.
//! - Casts of floats to whole numbers cut off the fraction and saturate, and NaN becomes 0; between whole numbers they wrap.
//!
//! ```no_run
//! use warpwave_gpu::{Devices, DeviceSpec, Selection};
//! use warpwave_jit::Jit;
//! use warpwave_kernels::{Kernels, Layout, Unary, View, ViewMut};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let Selection::Gpu(device) = Devices::hardware().select(&DeviceSpec::Auto)? else { return Ok(()) };
//! let (kernels, stream) = (Kernels::new(&device, &Jit::default()), device.stream()?);
//! let numbers = stream.upload(&[1.0f32, 2.0, 3.0, 4.0])?;
//! let mut result = stream.alloc::<f32>(4)?;
//! // The two rows of a 2 × 2 matrix become columns.
//! let columns = Layout::contiguous(&[2, 2])?.transpose(0, 1)?;
//! let mut out = ViewMut::new(&mut result, Layout::contiguous(&[2, 2])?)?;
//! kernels.unary(&stream, Unary::Exp, &View::new(&numbers, columns)?, &mut out)?;
//! # Ok(())
//! # }
//! ```
#![warn(missing_docs)]

mod append;
mod attention;
mod attention_options;
mod blas;
mod decode;
mod dtype;
mod elementwise;
mod error;
mod glu;
mod headers;
mod heads;
mod index;
mod kernels;
mod layout;
mod map;
mod matmul;
mod normalise;
mod order;
mod plan;
mod quant;
mod quant_view;
mod reduce;
mod rope;
mod rope_append;
mod sample;
mod scan;
mod scores;
mod source;
mod tune;
mod tuning;
mod view;
mod walk;

pub use append::AppendAt;
pub use attention::Packed;
pub use attention_options::{AttentionOptions, KeyValues};
pub use dtype::{DType, Element, Scalar, UnknownType};
pub use elementwise::{Binary, Unary};
pub use error::{Error, Result};
pub use glu::Glu;
pub use kernels::Kernels;
pub use layout::{Layout, MOST_DIMS};
pub use matmul::{Activation, Matmul, MatmulBy};
pub use normalise::Norm;
pub use quant::Activations;
pub use quant_view::{Quant, QuantView, QuantViewMut};
pub use reduce::Reduce;
pub use rope::{Places, Rope, RopeAngles, RopePairs, RopeScaling};
pub use sample::{Penalties, Randomness, Sampling};
pub use source::programs;
pub use tune::{Trial, tune};
pub use tuning::{Knob, Tuning};
pub use view::{View, ViewMut};
