//! GGUF files: metadata and tensors.

mod read;
mod value;
mod write;

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::path::Path;

pub use value::{Array, Strs, Value};
pub use write::write_gguf;

use crate::error::{Error, Result};
use crate::kind::Tensor;
use crate::map::{Bytes, Directory};

/// The default alignment of tensors.
const ALIGNMENT: usize = 32;

/// A GGUF file, version 2 or 3.
pub struct Gguf {
    path: String,
    bytes: Bytes,
    version: u32,
    alignment: usize,
    /// The ranges of each key and its value, in the file's order.
    keys: Vec<(Range<usize>, Range<usize>)>,
    by_key: HashMap<String, usize>,
    tensors: Directory,
}

impl fmt::Debug for Gguf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gguf").field("path", &self.path).field("version", &self.version).finish_non_exhaustive()
    }
}

macro_rules! accessors {
    ($($get:ident, $need:ident, $ty:ty, $to:ident, $what:literal;)*) => { $(
        #[doc = concat!("Returns the value of an optional key: ", $what, ".")]
        pub fn $get(&self, key: &str) -> Result<Option<$ty>> {
            let Some(value) = self.value(key) else { return Ok(None) };
            let found = value.name();
            value.$to().map(Some).ok_or_else(|| self.bad_key(key, format!("expected {}, got {found}", $what)))
        }

        #[doc = concat!("Returns the value of a required key: ", $what, ".")]
        pub fn $need(&self, key: &str) -> Result<$ty> {
            self.$get(key)?.ok_or_else(|| self.bad_key(key, format!("missing key; expected {}", $what)))
        }
    )* };
}

impl Gguf {
    /// Opens a file and validates all of it except the tensor elements.
    pub fn open(path: impl AsRef<Path>) -> Result<Gguf> {
        let path = path.as_ref();
        read::parse(path.display().to_string(), Bytes::open(path)?)
    }

    /// Reads a file in memory; `name` is used in errors.
    pub fn from_bytes(name: impl Into<String>, bytes: Vec<u8>) -> Result<Gguf> {
        read::parse(name.into(), Bytes::Read(bytes))
    }

    /// Returns the file's path, as errors name it.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the format version.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Returns the alignment of tensor offsets in bytes.
    pub fn alignment(&self) -> usize {
        self.alignment
    }

    /// Returns keys and values, in the file's order.
    pub fn metadata(&self) -> impl Iterator<Item = (&str, Value<'_>)> {
        self.keys.iter().filter_map(|(key, value)| {
            let key = std::str::from_utf8(self.bytes.get(key.clone())?).ok()?;
            Some((key, read::value(self.bytes.get(value.clone())?)?))
        })
    }

    /// Returns the value of a key.
    pub fn value(&self, key: &str) -> Option<Value<'_>> {
        let (_, value) = self.keys.get(*self.by_key.get(key)?)?;
        read::value(self.bytes.get(value.clone())?)
    }

    accessors! {
        get_u64, need_u64, u64, into_u64, "a non-negative integer";
        get_f32, need_f32, f32, into_f32, "a number";
        get_bool, need_bool, bool, into_bool, "a boolean";
        get_str, need_str, &str, into_str, "a string";
        get_strs, need_strs, Strs<'_>, into_strs, "an array of strings";
        get_f32s, need_f32s, Vec<f32>, into_f32s, "an array of floats";
        get_i64s, need_i64s, Vec<i64>, into_i64s, "an array of integers";
        get_bools, need_bools, Vec<bool>, into_bools, "an array of booleans";
    }

    /// Returns the tensors, in the file's order.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = Tensor<'_>> {
        self.tensors.tensors(&self.bytes)
    }

    /// Returns a tensor by its name.
    pub fn tensor(&self, name: &str) -> Option<Tensor<'_>> {
        self.tensors.get(name, &self.bytes)
    }

    /// Returns an error that names a key of this file.
    fn bad_key(&self, key: &str, reason: String) -> Error {
        Error::invalid(&self.path, format!("key `{key}`"), reason)
    }
}
