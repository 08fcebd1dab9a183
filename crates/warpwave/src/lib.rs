//! Write GPU kernels once, in CUDA C++; compile and run them on NVIDIA and AMD GPUs.
//!
//! This crate is the facade over the Warpwave libraries. [`device`] opens a device by name, [`devices`] lists what this machine has, [`gpu`]
//! drives the devices, [`jit`] compiles CUDA C++ for them.
//!
//! It promises one interface for all devices: what compiles for one runs on NVIDIA, on AMD and on the virtual GPU, chosen at run time, and
//! nothing is linked that a machine might lack. It leaves to the caller what kernels do with their memory: launching one is `unsafe`.
//!
//! ```
//! use warpwave::gpu::Launch;
//! use warpwave::jit::embed;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = warpwave::device("auto")?;
//! // Compiled ahead for several GPUs of both vendors; `jit::Jit` compiles CUDA C++ at run time.
//! let module = embed!("../../../examples/kernels/vector_add.wwb")?.load(&device)?;
//! let stream = device.stream()?;
//! let (a, b) = (stream.upload(&[1.0f32, 2.0])?, stream.upload(&[10.0f32, 20.0])?);
//! let mut sum = stream.alloc::<f32>(2)?;
//! // SAFETY: the arguments have the types of the kernel's parameters, and it stays within 2 elements.
//! unsafe { module.kernel("vector_add")?.launch(&stream, Launch::for_elements(2, 64), (&a, &b, &mut sum, 2i32))? };
//! assert_eq!(stream.download(&sum)?, [11.0, 22.0]);
//! # Ok(())
//! # }
//! ```
//!
//! | feature | module | contents |
//! |---|---|---|
//! | always | [`gpu`], [`jit`], [`hipify`] | devices, streams, buffers and launches; compilation and its cache; CUDA to HIP translation |
//! | `vgpu` | `vgpu` | the virtual AMD GPU, as the devices `vgpu:gfx90a` and others |
//! | `kernels` | `kernels` | operations on device memory |
//! | `tensor` | `tensor` | tensors on the CPU and on GPUs |
//! | `llm` | `llm`, `weights` | language models and their files |
//! | `diffusion` | `diffusion` | image models |
//!
//! All features are on by default. The `warpwave` command is the package `warpwave-cli`.

#![warn(missing_docs)]

#[cfg(feature = "diffusion")]
pub use warpwave_diffusion as diffusion;
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
#[cfg(feature = "tensor")]
pub use devices::tensor_device;
#[cfg(feature = "vgpu")]
pub use devices::{DEFAULT_VIRTUAL, VIRTUAL_LABEL, virtual_driver};
pub use devices::{device, devices};

/// The Rust code of the README and of the book, compiled and run as tests.
#[cfg(all(doctest, feature = "llm"))]
mod documents {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/guides/kernels-in-rust.md")]
    struct KernelsInRust;
}
