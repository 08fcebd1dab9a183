//! Tensors on a CPU or a GPU, with the same operations on both.
//!
//! A [`Tensor`] has a shape, strides, a type and a [`Device`]; views share its storage. On a GPU, operations are kernels of
//! `warpwave-kernels`, queued on the device's stream; on the CPU they are native code on all cores. A [`Matrix`] holds weights, plain or
//! in GGUF's quantized blocks, and a [`KvCache`] the keys and values of sequences.
//!
//! What this crate promises: operations take the same types and give the same results on every device, up to the order of floating-point
//! sums; shapes, types and devices are checked before anything is computed; nothing moves between devices unless the caller asks for it.
//! Out-of-range indices read 0 and write nothing. What it leaves to the caller: to keep tensors of one computation on one device, and to
//! wait for a GPU ([`Device::synchronize`]) before timing it.
//!
//! ```
//! use warpwave_tensor::{Device, Tensor};
//!
//! let a = Tensor::new(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2], &Device::Cpu)?;
//! let product = a.matmul(&a.t()?)?;
//! assert_eq!(product.to_vec::<f32>()?, [5.0, 11.0, 11.0, 25.0]);
//! # Ok::<(), warpwave_tensor::Error>(())
//! ```
//!
//! The trait in `backend.rs` is the whole contract of a device: a new operation is one method there and one in each of `cpu`, `gpu` and
//! `meta`.
#![warn(missing_docs)]

mod backend;
mod batch;
mod conv;
pub mod cpu;
mod dense_attention;
mod device;
mod dim;
mod display;
mod error;
mod gpu;
mod image;
mod kv_cache;
mod linear;
mod meta;
mod moe;
mod nn;
mod npy;
mod operators;
mod ops;
mod random;
pub mod safetensors;
mod sort;
mod tensor;

pub use batch::{Batch, BatchInput};
pub use cpu::Precision;
pub use device::{Device, check_host_memory};
pub use dim::Dim;
pub use error::{Error, Result};
pub use gpu::Gpu;
pub use kv_cache::{AttentionInputs, AttentionParams, BLOCK_SIZE, KvCache, KvCacheType, ParseKvCacheTypeError};
pub use linear::{Linear, Matrix};
pub use meta::{MemoryUse, Meta};
pub use moe::{ExpertChoice, Experts};
pub use nn::{Rope, RopePositions};
pub use random::Random;
pub use sort::Unique;
pub use tensor::Tensor;
