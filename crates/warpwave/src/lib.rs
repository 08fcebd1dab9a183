//! The pure parts of the `warpwave` command: element types, arrays and the argument language.

#![warn(missing_docs)]

pub mod array;
pub mod compare;
pub mod dtype;
pub mod npy;
pub mod scalar;
