//! The language of `warpwave run --arg SPEC`: one kernel argument as text.
//!
//! ```text
//! spec    = type ":" value                          a scalar: f32:2.5, i32:-7, u32:0xff, bool:true, f32:-inf
//!         | type "[" shape "]" [ "=" init ]         a buffer; without init all zeros
//! shape   = size { "," size }                       f32[64,32]
//!         | nothing                                 f32[]=@in.npy: the file's shape
//! size    = digits [ "K" | "M" ]                    4K is 4 x 1024, 1M is 1024 x 1024
//! init    = "zeros" | "ones" | value                every element the same
//!         | "iota" [ "(" start [ "," step ] ")" ]   start, start + step, ...; from 0 by 1
//!         | "rand" "(" seed [ "," lo "," hi ] ")"   random, see below
//!         | "@" path                                a .npy file; the path is all that follows
//! type    = "u8" | "i8" | ... | "bool"              see the dtype module, aliases included
//! value   = as Scalar::parse takes it
//! ```
//!
//! Spaces may stand between the parts of a buffer, except in a path, which is taken as it is.
//!
//! What [`Spec::parse`] accepts fits its type: integers are never wrapped, and no finite number becomes infinite. That
//! includes the last element of an `iota`. Floats are computed in f64 and rounded to the type once, to nearest even. The
//! size of a buffer is checked here as well, so all that is left for [`Buffer::materialise`] to fail on is memory and
//! files. [`Display`](fmt::Display) writes a text that parses to an equal `Spec`.
//!
//! # Random values
//!
//! `rand(SEED)` is the same on every machine and in every version, because tests are pinned on it. With `x` the 64-bit
//! output number `i` of SplitMix64 started at `SEED`, element `i` in C order is:
//!
//! * for an integer of `b` bits, the top `b` bits of `x`: the whole range; for bool, the top bit;
//! * for a float with `p` bits of precision (f16 11, bf16 8, f32 24, f64 53), the top `p` bits of `x` times 2^-p: uniform in
//!   [0, 1), never rounded;
//! * with `LO,HI`, in [LO, HI), the end excluded: for an integer, `LO + floor(x * (HI - LO) / 2^64)`; for a float,
//!   `LO + (HI - LO) * u` with `u` the top 53 bits of `x` times 2^-53, or `LO` where that rounds up to `HI`. `HI` may be
//!   one past an integer type's largest value; float bounds are first rounded to the type.

mod fill;
mod parse;
#[cfg(test)]
mod tests;

use crate::{
    array::{Array, ShapeError, ShapeText},
    dtype::DType,
    npy::FileError,
    scalar::{Number, Scalar},
};
use std::{
    fmt,
    path::{Path, PathBuf},
};

/// One kernel argument.
#[derive(Clone, Debug, PartialEq)]
pub enum Spec {
    /// Passed by value.
    Scalar(Scalar),
    /// Passed as a pointer to device memory.
    Buffer(Buffer),
}

/// A buffer argument. Made by [`Spec::parse`] only, so its parts always go together.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffer {
    dtype: DType,
    shape: Option<Vec<usize>>,
    init: Init,
}

/// What a buffer holds at first.
#[derive(Clone, Debug, PartialEq)]
pub enum Init {
    /// Every element zero.
    Zeros,
    /// Every element one.
    Ones,
    /// Every element this.
    Fill(Scalar),
    /// `start + i * step`.
    Iota {
        /// The first element.
        start: Number,
        /// The difference from one to the next.
        step: Number,
    },
    /// Random, by the rule in the [module documentation](self).
    Rand {
        /// Where the generator starts.
        seed: u64,
        /// The bounds, the second excluded; `None` for the type's default range.
        range: Option<(Number, Number)>,
    },
    /// The contents of a `.npy` file.
    File(PathBuf),
}

/// Where and why a text is no [`Spec`].
///
/// The message stands on the first line; the text, with a caret under the place, on the next two.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}\n  {}\n  {:>2$}", printable(.text), '^', .text.get(..*.offset).map_or(0, |before| before.chars().count()) + 1)]
pub struct SpecError {
    text: String,
    offset: usize,
    message: String,
}

/// One column per character, so that the caret stands under its place.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

impl SpecError {
    /// The byte in the text where reading failed.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// What was expected there, without the text and the caret.
    pub fn message(&self) -> &str {
        &self.message
    }
}

/// Why a buffer could not be filled.
#[derive(Debug, thiserror::Error)]
pub enum MaterialiseError {
    /// A size that no array can have.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// The operating system did not grant the memory.
    #[error("not enough memory for the {bytes} bytes of {dtype}{}", ShapeText(.shape))]
    OutOfMemory {
        /// The element type.
        dtype: DType,
        /// The shape.
        shape: Vec<usize>,
        /// The bytes it takes.
        bytes: usize,
    },
    /// The file could not be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file's elements have another type.
    #[error("{}: the file holds {found}, but the argument says {expected}", .path.display())]
    WrongDType {
        /// The file.
        path: PathBuf,
        /// Its type.
        found: DType,
        /// The argument's type.
        expected: DType,
    },
    /// The file's array has another shape.
    #[error("{}: the file has shape {}, but the argument says {}", .path.display(), ShapeText(.found), ShapeText(.expected))]
    WrongShape {
        /// The file.
        path: PathBuf,
        /// Its shape.
        found: Vec<usize>,
        /// The argument's shape.
        expected: Vec<usize>,
    },
}

impl Spec {
    /// Reads one argument.
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
    /// The type of each element.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The shape, or `None` where the file decides.
    pub fn shape(&self) -> Option<&[usize]> {
        self.shape.as_deref()
    }

    /// What the buffer holds at first.
    pub fn init(&self) -> &Init {
        &self.init
    }

    /// The file it is read from, if it is.
    pub fn path(&self) -> Option<&Path> {
        match &self.init {
            Init::File(path) => Some(path),
            _ => None,
        }
    }

    /// The buffer's contents: computed, or read from its file and checked against type and shape.
    ///
    /// A file of u16 is taken as bf16 where the argument says so; no other type is converted.
    pub fn materialise(&self) -> Result<Array, MaterialiseError> {
        fill::materialise(self)
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
