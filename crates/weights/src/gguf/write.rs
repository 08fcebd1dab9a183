//! Writes GGUF files.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use super::ALIGNMENT;
use super::value::Value;
use crate::error::{Error, Result};
use crate::kind::TensorInfo;

/// A temporary file, deleted on drop unless it is kept.
struct Temporary {
    path: PathBuf,
    kept: bool,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.kept {
            // The error that led here is reported; a failed removal is not.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Writes a GGUF file, version 3.
///
/// `data` returns the bytes of each tensor by index, in order; `progress` receives the bytes of tensors written and their total. The file is
/// written under a temporary name and renamed when complete: on failure nothing is left, and an existing file stays.
pub fn write_gguf<'d, E: From<Error>>(
    path: impl AsRef<Path>,
    metadata: &[(Cow<'_, str>, Value<'_>)],
    tensors: &[TensorInfo],
    mut data: impl FnMut(usize) -> Result<Cow<'d, [u8]>, E>,
    mut progress: impl FnMut(u64, u64),
) -> Result<(), E> {
    let path = path.as_ref();
    let shown = path.display().to_string();
    let (header, alignment, total) = header(&shown, metadata, tensors)?;
    let mut temporary = OsString::from(".");
    temporary.push(path.file_name().ok_or_else(|| Error::invalid(&shown, "path", "expected a path with a file name"))?);
    temporary.push(format!(".{}.part", std::process::id()));
    let temporary = path.with_file_name(temporary);
    let file = File::create_new(&temporary).map_err(Error::io(&temporary))?;
    let mut temporary = Temporary { path: temporary, kept: false };
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let mut put = |bytes: &[u8]| {
        let padding = bytes.len().next_multiple_of(alignment) - bytes.len();
        out.write_all(bytes).and_then(|()| out.write_all(&vec![0; padding]))
    };
    put(&header).map_err(Error::io(&temporary.path))?;
    let mut done = 0;
    progress(done, total);
    for (index, tensor) in tensors.iter().enumerate() {
        let bytes = data(index)?;
        let expected = size(&shown, tensor)?;
        if bytes.len() != expected {
            let reason = format!("expected {expected} bytes for {} {:?}, got {}", tensor.kind, tensor.shape, bytes.len());
            return Err(invalid_tensor(&shown, tensor, reason).into());
        }
        put(&bytes).map_err(Error::io(&temporary.path))?;
        done += bytes.len() as u64;
        progress(done, total);
    }
    out.flush().and_then(|()| out.get_ref().sync_all()).map_err(Error::io(&temporary.path))?;
    fs::rename(&temporary.path, path).map_err(Error::io(path))?;
    temporary.kept = true;
    Ok(())
}

fn invalid_tensor(path: &str, tensor: &TensorInfo, reason: impl Into<String>) -> Error {
    Error::invalid(path, format!("tensor `{}`", tensor.name), reason)
}

fn size(path: &str, tensor: &TensorInfo) -> Result<usize> {
    tensor.kind.bytes(&tensor.shape).map_err(|reason| invalid_tensor(path, tensor, reason))
}

/// Returns everything before the data, the alignment, and the bytes of all tensors.
fn header(path: &str, metadata: &[(Cow<'_, str>, Value<'_>)], tensors: &[TensorInfo]) -> Result<(Vec<u8>, usize, u64)> {
    let mut out = b"GGUF".to_vec();
    out.extend(3u32.to_le_bytes());
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend((metadata.len() as u64).to_le_bytes());
    let (mut alignment, mut seen) = (ALIGNMENT, HashSet::new());
    for (key, value) in metadata {
        let invalid = |reason: &str| Error::invalid(path, format!("key `{key}`"), reason);
        if !seen.insert(&**key) {
            return Err(invalid("duplicate key"));
        }
        if key == "general.alignment" {
            let given = value.clone().into_u64().filter(|value| value.is_power_of_two() && *value <= 1 << 20);
            alignment = given.ok_or_else(|| invalid("must be a power of two, at most 2^20"))? as usize;
        }
        Value::from(&**key).encode(&mut out);
        out.extend(value.number().to_le_bytes());
        value.encode(&mut out);
    }
    let (mut offset, mut total, mut seen) = (0u64, 0u64, HashSet::new());
    for tensor in tensors {
        if !seen.insert(&*tensor.name) {
            return Err(invalid_tensor(path, tensor, "duplicate name"));
        }
        if tensor.shape.len() > 4 {
            return Err(invalid_tensor(path, tensor, format!("{} dimensions; the maximum is 4", tensor.shape.len())));
        }
        let number = tensor.kind.gguf_type().ok_or_else(|| invalid_tensor(path, tensor, format!("GGUF has no type {}", tensor.kind)))?;
        let bytes = size(path, tensor)?;
        Value::from(&*tensor.name).encode(&mut out);
        out.extend((tensor.shape.len() as u32).to_le_bytes());
        tensor.shape.iter().rev().for_each(|dim| out.extend((*dim as u64).to_le_bytes()));
        out.extend(number.to_le_bytes());
        out.extend(offset.to_le_bytes());
        let padded = bytes.checked_next_multiple_of(alignment).and_then(|bytes| offset.checked_add(bytes as u64));
        offset = padded.ok_or_else(|| invalid_tensor(path, tensor, "the file size overflows"))?;
        total += bytes as u64;
    }
    Ok((out, alignment, total))
}
