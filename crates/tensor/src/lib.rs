//! Tensors on a CPU or a GPU, with the same operations on both.
//!
//! A [`Tensor`] has a shape, strides, a type and a [`Device`]; views of it share its memory. On a GPU operations are kernels of
//! `warpwave-kernels`, queued on the device's stream; on a CPU they are native code, on all cores. A [`Matrix`] holds weights as they are,
//! plain or in GGUF's quantised blocks, and a [`KvCache`] the keys and values of sequences.
//!
//! What this crate promises: an operation gives the same on both but for the order of sums, what does not fit is an [`Error`] before
//! anything is computed, and nothing is copied between devices unless it is asked for.
//!
//! ```
//! use warpwave_tensor::{Device, Tensor};
//!
//! let a = Tensor::new(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2], &Device::Cpu)?;
//! let product = a.matmul(&a.transpose(0, 1)?)?;
//! assert_eq!(product.to_vec::<f32>()?, [5.0, 11.0, 11.0, 25.0]);
//! # Ok::<(), warpwave_tensor::Error>(())
//! ```
#![warn(missing_docs)]

mod cache;
pub mod cpu;
mod device;
mod error;
mod matrix;
mod nn;
mod ops;
mod product;
mod reduce;
mod step;
mod tensor;
mod values;

pub use cache::{Attend, BLOCK, KvCache};
pub use cpu::Precision;
pub use device::{Device, Gpu, ask_for};
pub use error::{Error, Result};
pub use matrix::{Linear, Matrix};
pub use nn::{Rope, RopeAt};
pub use step::{Step, StepNumbers};
pub use tensor::Tensor;
