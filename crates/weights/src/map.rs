//! A file's bytes, and the directory of its tensors.

use std::collections::HashMap;
use std::fs::File;
use std::ops::{Deref, Range};
use std::path::Path;

use memmap2::Mmap;

use crate::error::{Error, Result};
use crate::kind::{Tensor, TensorInfo};

/// A file's bytes: mapped, or in memory.
#[derive(Debug)]
pub(crate) enum Bytes {
    Mapped(Mmap),
    Read(Vec<u8>),
}

impl Bytes {
    pub fn open(path: &Path) -> Result<Bytes> {
        let file = File::open(path).map_err(Error::io(path))?;
        if !file.metadata().map_err(Error::io(path))?.is_file() {
            return Err(Error::invalid(&path.display().to_string(), "path", "not a regular file"));
        }
        // SAFETY: the map is only read. The caller makes sure that the file does not change; offsets and lengths are still checked again
        // wherever they are read from the map later.
        let map = unsafe { Mmap::map(&file) }.map_err(Error::io(path))?;
        Ok(Bytes::Mapped(map))
    }
}

impl Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Mapped(map) => map,
            Bytes::Read(bytes) => bytes,
        }
    }
}

/// The tensors of a file, in order and by name.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    entries: Vec<(TensorInfo, Range<usize>)>,
    by_name: HashMap<String, usize>,
}

impl Directory {
    /// Adds a tensor; returns false if the name is a duplicate.
    pub fn add(&mut self, info: TensorInfo, range: Range<usize>) -> bool {
        let taken = self.by_name.insert(info.name.clone(), self.entries.len()).is_some();
        self.entries.push((info, range));
        !taken
    }

    pub fn entries(&self) -> &[(TensorInfo, Range<usize>)] {
        &self.entries
    }

    pub fn tensors<'a>(&'a self, bytes: &'a [u8]) -> impl ExactSizeIterator<Item = Tensor<'a>> {
        self.entries.iter().map(|(info, range)| tensor(info, range, bytes))
    }

    pub fn get<'a>(&'a self, name: &str, bytes: &'a [u8]) -> Option<Tensor<'a>> {
        let (info, range) = self.entries.get(*self.by_name.get(name)?)?;
        Some(tensor(info, range, bytes))
    }
}

fn tensor<'a>(info: &'a TensorInfo, range: &Range<usize>, bytes: &'a [u8]) -> Tensor<'a> {
    // The range was checked when the file was opened.
    Tensor { name: &info.name, kind: info.kind, shape: &info.shape, bytes: bytes.get(range.clone()).unwrap_or_default() }
}
