//! Write GPU kernels once, in CUDA C++; compile and run them on NVIDIA and AMD GPUs.
//!
//! This crate is the facade over the Warpwave libraries. [`discover`] finds the devices of this machine, [`gpu`] drives them, [`jit`] compiles
//! CUDA C++ for them.
//!
//! | feature | module | contents |
//! |---|---|---|
//! | always | [`gpu`], [`jit`], [`hipify`] | devices, streams, buffers and launches; compilation and its cache; CUDA to HIP translation |
//! | `vgpu` | `vgpu` | the virtual AMD GPU, as the devices `vgpu:gfx90a` and others |
//! | `kernels` | `kernels` | operations on device memory |
//! | `tensor` | `tensor` | tensors on the CPU and on GPUs |
//! | `llm` | `llm`, `weights` | language models and their files |
//!
//! All features are on by default. The `warpwave` command is the package `warpwave-cli`.

#![warn(missing_docs)]

pub use warpwave_gpu as gpu;
pub use warpwave_hipify as hipify;
pub use warpwave_jit as jit;
#[cfg(feature = "kernels")]
pub use warpwave_kernels as kernels;
#[cfg(feature = "llm")]
pub use warpwave_llm as llm;
#[cfg(feature = "tensor")]
pub use warpwave_tensor as tensor;
#[cfg(feature = "vgpu")]
pub use warpwave_vgpu as vgpu;
#[cfg(feature = "llm")]
pub use warpwave_weights as weights;

mod devices;
pub use devices::discover;
#[cfg(feature = "vgpu")]
pub use devices::{DEFAULT_VIRTUAL, virtual_driver};

/// The README's Rust code, compiled and run as a test of the documentation.
#[cfg(all(doctest, feature = "llm"))]
#[doc = include_str!("../../../README.md")]
struct Readme;
