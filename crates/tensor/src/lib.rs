//! Tensors on a CPU or a GPU, with the same operations on both.
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
