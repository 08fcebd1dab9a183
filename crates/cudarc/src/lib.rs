//! A drop-in replacement for the crate [cudarc](https://crates.io/crates/cudarc) over Warpwave's devices: programs written for it, above all
//! [candle](https://github.com/huggingface/candle), run unmodified on AMD, NVIDIA and virtual GPUs.
//!
//! It has the types and functions that candle 0.11.1 uses of `driver`, `nvrtc`, `cublas` and `curand`, with the real crate's names and
//! signatures, and the C functions that candle's crates link. It replaces the real crate in a program's `Cargo.toml`:
//!
//! ```toml
//! [patch.crates-io]
//! cudarc = { path = "/path/to/warpwave/crates/cudarc" }
//! cudaforge = { path = "/path/to/warpwave/crates/cudaforge" }
//! ```
//!
//! What it promises:
//!
//! - [`driver::CudaContext::new`] counts NVIDIA's devices, AMD's, then the virtual ones if `WARPWAVE_VGPU_DEVICES` lists them. The device
//!   that `WARPWAVE_DEVICE` names is the first.
//! - Each kernel is compiled separately when a program loads it, and cached on disk.
//! - Errors display their reason: a missing driver with what was tried, the compiler's messages, the kernel and the limit it exceeds.
//! - Work on memory that several streams use is ordered, even if the program disables event tracking. Memory is reused in stream order.
//! - Addresses that arrive without a type (BLAS, C functions) are looked up and checked against the memory they are in.
//! - A C function that fails returns its error from the next call on the device, and from every use of the result it did not write.
//!
//! What it leaves to the caller, as the real crate does: the types of kernel arguments and the kernel's memory accesses.
//!
//! ```no_run
//! use cudarc::driver::{CudaContext, LaunchConfig, PushKernelArg};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let context = CudaContext::new(0)?;
//! let stream = context.default_stream();
//! let code = cudarc::nvrtc::compile_ptx("extern \"C\" __global__ void twice(float *x, int n) { int i = threadIdx.x; if (i < n) x[i] *= 2; }")?;
//! let twice = context.load_module(code)?.load_function("twice")?;
//! let mut x = stream.clone_htod(&[1.0f32, 2.0, 3.0])?;
//! // SAFETY: the arguments have the types of the kernel's parameters, and it accesses 3 elements.
//! unsafe { stream.launch_builder(&twice).arg(&mut x).arg(&3i32).launch(LaunchConfig::for_num_elems(3)) }?;
//! assert_eq!(stream.clone_dtoh(&x)?, [2.0, 4.0, 6.0]);
//! # Ok(())
//! # }
//! ```
#![warn(missing_docs)]

#[cfg(feature = "cudnn")]
compile_error!("Warpwave's cudarc has no cuDNN: build candle without its feature `cudnn`; convolutions then run as im2col and matmul");
#[cfg(feature = "nccl")]
compile_error!("Warpwave's cudarc has no NCCL: build candle without its feature `nccl`");

pub mod cublas;
pub mod cublaslt;
pub mod curand;
pub mod driver;
mod error;
mod gpu;
mod launchers;
pub mod nvrtc;
mod source;
