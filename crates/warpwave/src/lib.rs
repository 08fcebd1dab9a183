//! Write GPU kernels once, in CUDA C++; compile and run them on NVIDIA and AMD GPUs.
//!
//! This crate is the facade: [`discover`] finds the devices, [`gpu`] drives them, [`vgpu`] is a virtual AMD GPU among them, [`jit`] turns
//! source into modules, [`hipify`] translates CUDA files to HIP; [`kernels`] are operations on device memory, [`tensor`] is tensors on
//! them and on the CPU, [`weights`] reads and writes model files, [`llm`] runs language models; and [`cli`] is the `warpwave` command.
//!
//! The other modules are the command's pure parts: they turn what a user types or saves into bytes a kernel can take, and turn bytes a
//! kernel left behind into files, differences and text:
//!
//! * [`dtype`] and [`scalar`]: the element types and one value of any of them;
//! * [`mod@array`]: a typed, shaped block of bytes;
//! * [`npy`]: NumPy's `.npy` files;
//! * [`spec`]: the language of `warpwave run --arg`;
//! * [`compare`]: is this result the expected one?
//!
//! Every function that takes outside input (a file, an argument) answers with an error that names what was found and what
//! was expected; none panics. Array bytes are little-endian and in C order everywhere, which is what both GPU vendors read.
//!
//! ```
//! use warpwave::{array::format_values, compare::compare, npy, spec::Spec};
//!
//! let Spec::Buffer(buffer) = Spec::parse("f32[2,3]=iota(0.5,1)")? else { panic!("a buffer") };
//! let array = buffer.materialise()?;
//! assert_eq!(format_values(&array, 2), "f32[2,3] = 0.5, 1.5, ... (4 more)");
//!
//! let mut file = Vec::new();
//! npy::write(&mut file, &array)?;
//! assert!(compare(&npy::read(&mut file.as_slice())?, &array, 0.0)?.is_match());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![warn(missing_docs)]

pub use warpwave_gpu as gpu;
pub use warpwave_hipify as hipify;
pub use warpwave_jit as jit;
pub use warpwave_kernels as kernels;
pub use warpwave_llm as llm;
pub use warpwave_tensor as tensor;
pub use warpwave_vgpu as vgpu;
pub use warpwave_weights as weights;

pub mod array;
pub mod cli;
pub mod compare;
pub mod dtype;
pub mod npy;
pub mod scalar;
pub mod spec;

mod devices;
pub use devices::{DEFAULT_VIRTUAL, discover, virtual_driver};

/// The README's Rust code, compiled and run as a test of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
