//! Writing GGUF.

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

/// A file that is written beside its place, and is gone unless it is put there.
struct Beside {
    path: PathBuf,
    kept: bool,
}

impl Drop for Beside {
    fn drop(&mut self) {
        if !self.kept {
            // Nothing can be done about a file that cannot be removed; the error that led here is the one to hear of.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Writes a GGUF file, version 3. `data` gives the bytes of one tensor after the other, by its index; `progress` hears of the bytes of
/// tensors that are written, and of all. The file is written beside its place and moved there when it is whole: on failure nothing is left,
/// and a file that was there before stays.
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
    let mut beside = OsString::from(".");
    beside.push(path.file_name().ok_or_else(|| Error::bad(&shown, "the path", "it names no file"))?);
    beside.push(format!(".{}.part", std::process::id()));
    let beside = path.with_file_name(beside);
    let file = File::create_new(&beside).map_err(Error::io(&beside))?;
    let mut beside = Beside { path: beside, kept: false };
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let mut put = |bytes: &[u8]| {
        let padding = bytes.len().next_multiple_of(alignment) - bytes.len();
        out.write_all(bytes).and_then(|()| out.write_all(&vec![0; padding]))
    };
    put(&header).map_err(Error::io(&beside.path))?;
    let mut done = 0;
    progress(done, total);
    for (index, tensor) in tensors.iter().enumerate() {
        let bytes = data(index)?;
        let expected = size(&shown, tensor)?;
        if bytes.len() != expected {
            let reason = format!("{} bytes were given for {} {:?}, which takes {expected}", bytes.len(), tensor.kind, tensor.shape);
            return Err(bad_tensor(&shown, tensor, reason).into());
        }
        put(&bytes).map_err(Error::io(&beside.path))?;
        done += bytes.len() as u64;
        progress(done, total);
    }
    out.flush().and_then(|()| out.get_ref().sync_all()).map_err(Error::io(&beside.path))?;
    fs::rename(&beside.path, path).map_err(Error::io(path))?;
    beside.kept = true;
    Ok(())
}

fn bad_tensor(path: &str, tensor: &TensorInfo, reason: impl Into<String>) -> Error {
    Error::bad(path, format!("tensor `{}`", tensor.name), reason)
}

fn size(path: &str, tensor: &TensorInfo) -> Result<usize> {
    tensor.kind.bytes(&tensor.shape).map_err(|reason| bad_tensor(path, tensor, reason))
}

/// All before the data, the alignment, and the bytes of all tensors.
fn header(path: &str, metadata: &[(Cow<'_, str>, Value<'_>)], tensors: &[TensorInfo]) -> Result<(Vec<u8>, usize, u64)> {
    let mut out = b"GGUF".to_vec();
    out.extend(3u32.to_le_bytes());
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend((metadata.len() as u64).to_le_bytes());
    let (mut alignment, mut seen) = (ALIGNMENT, HashSet::new());
    for (key, value) in metadata {
        let bad = |reason: &str| Error::bad(path, format!("key `{key}`"), reason);
        if !seen.insert(&**key) {
            return Err(bad("the key is there twice"));
        }
        if key == "general.alignment" {
            let given = value.clone().into_u64().filter(|value| value.is_power_of_two() && *value <= 1 << 20);
            alignment = given.ok_or_else(|| bad("it should be a power of two, up to 2²⁰"))? as usize;
        }
        Value::from(&**key).encode(&mut out);
        out.extend(value.number().to_le_bytes());
        value.encode(&mut out);
    }
    let (mut offset, mut total, mut seen) = (0u64, 0u64, HashSet::new());
    for tensor in tensors {
        if !seen.insert(&*tensor.name) {
            return Err(bad_tensor(path, tensor, "the name is there twice"));
        }
        if tensor.shape.len() > 4 {
            return Err(bad_tensor(path, tensor, format!("{} dimensions are more than GGUF's 4", tensor.shape.len())));
        }
        let number = tensor.kind.gguf_type().ok_or_else(|| bad_tensor(path, tensor, format!("{} is no type of GGUF's", tensor.kind)))?;
        let bytes = size(path, tensor)?;
        Value::from(&*tensor.name).encode(&mut out);
        out.extend((tensor.shape.len() as u32).to_le_bytes());
        tensor.shape.iter().rev().for_each(|dim| out.extend((*dim as u64).to_le_bytes()));
        out.extend(number.to_le_bytes());
        out.extend(offset.to_le_bytes());
        let padded = bytes.checked_next_multiple_of(alignment).and_then(|bytes| offset.checked_add(bytes as u64));
        offset = padded.ok_or_else(|| bad_tensor(path, tensor, "the tensors are too large for any file"))?;
        total += bytes as u64;
    }
    Ok((out, alignment, total))
}
