//! The syntax of `warpwave run --arg SPEC`: one kernel argument as text.
//!
//! ```text
//! spec    = type ":" value                          a scalar: f32:2.5, i32:-7, u32:0xff, bool:true, f32:-inf
//!         | type "[" shape "]" [ "=" init ]         a buffer; without init all zeros
//! shape   = size { "," size }                       f32[64,32]
//!         | (empty)                                 f32[]=@in.npy: the shape of the file
//! size    = digits [ "K" | "M" ]                    4K is 4 x 1024, 1M is 1024 x 1024
//! init    = "zeros" | "ones" | value                all elements equal
//!         | "iota" [ "(" start [ "," step ] ")" ]   start, start + step, ...; from 0 by 1
//!         | "rand" "(" seed [ "," lo "," hi ] ")"   random, see below
//!         | "@" path                                a .npy file; the rest of the text is the path
//! type    = "u8" | "i8" | ... | "bool"              or a CUDA name such as float
//! value   = see Value::parse
//! ```
//!
//! Spaces are allowed between the parts of a buffer; a path is taken verbatim.
//!
//! Values accepted by [`Spec::parse`] are in range for their type, including the last element of an `iota`: integers never wrap, and
//! finite values never become infinite. Floats are computed in f64 and rounded to the type once, to nearest even. Buffer sizes are
//! checked too, so [`Buffer::materialize`] can only fail on memory and files. [`Display`](fmt::Display) writes text that parses to
//! an equal `Spec`.
//!
//! # Random values
//!
//! `rand(SEED)` is the same on every machine and in every version, because tests depend on it. With `x` the `i`-th 64-bit output of
//! SplitMix64 seeded with `SEED`, element `i` in C order is:
//!
//! * for a `b`-bit integer, the top `b` bits of `x` (the full range); for bool, the top bit;
//! * for a float with `p` bits of precision (f8e5m2 3, f8e4m3 4, bf16 8, f16 11, f32 24, f64 53), the top `p` bits of `x` times 2^-p: uniform in
//!   [0, 1), exact;
//! * with `LO,HI`, in [LO, HI): for an integer, `LO + floor(x * (HI - LO) / 2^64)`; for a float,
//!   `LO + (HI - LO) * u` with `u` the top 53 bits of `x` times 2^-53, or `LO` where that rounds up to `HI`. `HI` may be
//!   one past an integer type's largest value; float bounds are first rounded to the type.

mod fill;
mod parse;
#[cfg(test)]
mod tests;

use crate::{
    array::{Array, ShapeError, ShapeText},
    npy::FileError,
    value::Value,
};
use std::{
    fmt,
    path::{Path, PathBuf},
};

use warpwave_kernels::{DType, Scalar};

/// One kernel argument.
#[derive(Clone, Debug, PartialEq)]
pub enum Spec {
    /// Passed by value.
    Scalar(Value),
    /// Passed as a pointer to device memory.
    Buffer(Buffer),
}

/// A buffer argument. Created by [`Spec::parse`] only, so its parts are always consistent.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffer {
    dtype: DType,
    shape: Option<Vec<usize>>,
    init: Init,
}

/// Initial contents of a buffer.
#[derive(Clone, Debug, PartialEq)]
pub enum Init {
    /// All zeros.
    Zeros,
    /// All ones.
    Ones,
    /// All elements equal to this value.
    Fill(Value),
    /// `start + i * step`.
    Iota {
        /// The first element.
        start: Scalar,
        /// The increment.
        step: Scalar,
    },
    /// Random values as described in the [module documentation](self).
    Rand {
        /// Seed of the generator.
        seed: u64,
        /// Bounds `[lo, hi)`; `None` for the default range of the type.
        range: Option<(Scalar, Scalar)>,
    },
    /// The contents of a `.npy` file.
    File(PathBuf),
}

/// A syntax error in a [`Spec`].
///
/// Formats as three lines: the message, the text, and a caret under the error position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}\n  {}\n  {:>2$}", printable(.text), '^', .text.get(..*.offset).map_or(0, |before| before.chars().count()) + 1)]
pub struct SpecError {
    text: String,
    offset: usize,
    message: String,
}

/// Replaces control characters, so that the caret lines up.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

impl SpecError {
    /// Returns the byte offset of the error.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the message without the text and the caret.
    pub fn message(&self) -> &str {
        &self.message
    }
}

/// A buffer could not be created.
#[derive(Debug, thiserror::Error)]
pub enum MaterializeError {
    /// Invalid shape.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// Out of memory.
    #[error("out of memory: {dtype}{} needs {bytes} bytes", ShapeText(.shape))]
    OutOfMemory {
        /// The element type.
        dtype: DType,
        /// The shape.
        shape: Vec<usize>,
        /// Its size in bytes.
        bytes: usize,
    },
    /// The file could not be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file has a different element type.
    #[error("{}: expected {expected}, but the file has {found}", .path.display())]
    WrongDType {
        /// The file.
        path: PathBuf,
        /// Type of the file.
        found: DType,
        /// Type of the argument.
        expected: DType,
    },
    /// The file has a different shape.
    #[error("{}: expected shape {}, but the file has {}", .path.display(), ShapeText(.expected), ShapeText(.found))]
    WrongShape {
        /// The file.
        path: PathBuf,
        /// Shape of the file.
        found: Vec<usize>,
        /// Shape of the argument.
        expected: Vec<usize>,
    },
}

impl Spec {
    /// Parses one argument.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        parse::parse(text)
    }
}

impl std::str::FromStr for Spec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        Self::parse(text)
    }
}

impl Buffer {
    /// Returns the element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the shape, or `None` if the file determines it.
    pub fn shape(&self) -> Option<&[usize]> {
        self.shape.as_deref()
    }

    /// Returns the initial contents.
    pub fn init(&self) -> &Init {
        &self.init
    }

    /// Returns the file the buffer is read from, if any.
    pub fn path(&self) -> Option<&Path> {
        match &self.init {
            Init::File(path) => Some(path),
            _ => None,
        }
    }

    /// Computes the contents, or reads them from the file and checks type and shape.
    ///
    /// A u16 file is accepted for a bf16 argument; no other types are converted.
    pub fn materialize(&self) -> Result<Array, MaterializeError> {
        fill::materialize(self)
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Spec::Scalar(value) => write!(f, "{}:{value}", value.dtype()),
            Spec::Buffer(buffer) => buffer.fmt(f),
        }
    }
}

impl fmt::Display for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}={}", self.dtype, ShapeText(self.shape().unwrap_or_default()), self.init)
    }
}

impl fmt::Display for Init {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Init::Zeros => f.write_str("zeros"),
            Init::Ones => f.write_str("ones"),
            Init::Fill(value) => value.fmt(f),
            Init::Iota { start, step } => write!(f, "iota({start},{step})"),
            Init::Rand { seed, range: None } => write!(f, "rand({seed})"),
            Init::Rand { seed, range: Some((lo, hi)) } => write!(f, "rand({seed},{lo},{hi})"),
            Init::File(path) => write!(f, "@{}", path.display()),
        }
    }
}
