//! GGUF files: metadata by key, and tensors.

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

/// What tensors are aligned to where the metadata do not say.
const ALIGNMENT: usize = 32;

/// A GGUF file, version 2 or 3.
pub struct Gguf {
    path: String,
    bytes: Bytes,
    version: u32,
    alignment: usize,
    /// Where each key lies, in the file's order, and its value behind it.
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
        #[doc = concat!("The value of a key, which is ", $what, " if the key is there at all.")]
        pub fn $get(&self, key: &str) -> Result<Option<$ty>> {
            let Some(value) = self.value(key) else { return Ok(None) };
            let found = value.name();
            value.$to().map(Some).ok_or_else(|| self.bad_key(key, format!("it should be {}, and is {found}", $what)))
        }

        #[doc = concat!("The value of a key that has to be there: ", $what, ".")]
        pub fn $need(&self, key: &str) -> Result<$ty> {
            self.$get(key)?.ok_or_else(|| self.bad_key(key, format!("the key is missing; it should be {}", $what)))
        }
    )* };
}

impl Gguf {
    /// Opens a file and checks all of it but the tensors' elements.
    pub fn open(path: impl AsRef<Path>) -> Result<Gguf> {
        let path = path.as_ref();
        read::parse(path.display().to_string(), Bytes::open(path)?)
    }

    /// The same for a file that is in memory; `name` is for errors.
    pub fn from_bytes(name: impl Into<String>, bytes: Vec<u8>) -> Result<Gguf> {
        read::parse(name.into(), Bytes::Read(bytes))
    }

    /// The file, as errors name it.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The version of the format.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// What the tensors' places are multiples of.
    pub fn alignment(&self) -> usize {
        self.alignment
    }

    /// Keys and values, in the file's order.
    pub fn metadata(&self) -> impl Iterator<Item = (&str, Value<'_>)> {
        self.keys.iter().filter_map(|(key, value)| {
            let key = std::str::from_utf8(self.bytes.get(key.clone())?).ok()?;
            Some((key, read::value(self.bytes.get(value.clone())?)?))
        })
    }

    /// The value of a key.
    pub fn value(&self, key: &str) -> Option<Value<'_>> {
        let (_, value) = self.keys.get(*self.by_key.get(key)?)?;
        read::value(self.bytes.get(value.clone())?)
    }

    accessors! {
        get_u64, need_u64, u64, into_u64, "a whole number from 0";
        get_f32, need_f32, f32, into_f32, "a number";
        get_bool, need_bool, bool, into_bool, "true or false";
        get_str, need_str, &str, into_str, "a text";
        get_strs, need_strs, Strs<'_>, into_strs, "an array of texts";
        get_f32s, need_f32s, Vec<f32>, into_f32s, "an array of floats";
        get_i64s, need_i64s, Vec<i64>, into_i64s, "an array of whole numbers";
        get_bools, need_bools, Vec<bool>, into_bools, "an array of true and false";
    }

    /// The tensors, in the file's order.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = Tensor<'_>> {
        self.tensors.tensors(&self.bytes)
    }

    /// A tensor by its name.
    pub fn tensor(&self, name: &str) -> Option<Tensor<'_>> {
        self.tensors.get(name, &self.bytes)
    }

    /// An error that names a key of this file.
    fn bad_key(&self, key: &str, reason: String) -> Error {
        Error::bad(&self.path, format!("key `{key}`"), reason)
    }
}
