//! Reads safetensors: one file, or the shards of a folder.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::path::Path;

use safetensors::tensor::{TensorView, serialize_to_file};
use safetensors::{Dtype, SafeTensors};
use warpwave_kernels::DType;

use crate::error::{Error, Result};
use crate::kind::{Kind, Tensor, TensorInfo};
use crate::map::{Bytes, Directory};

/// The index of a sharded model.
const INDEX: &str = "model.safetensors.index.json";
/// The file of a model that is not sharded.
const SINGLE: &str = "model.safetensors";

/// The tensors of a safetensors file, or of several shards.
pub struct Safetensors {
    files: Vec<(Bytes, Directory)>,
    /// The file of each tensor.
    by_name: HashMap<String, usize>,
}

impl fmt::Debug for Safetensors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Safetensors").field("files", &self.files.len()).field("tensors", &self.by_name.len()).finish()
    }
}

impl Safetensors {
    /// Opens a file, the shards that an index lists (a `.json` file), or a folder with `model.safetensors` or
    /// `model.safetensors.index.json`.
    pub fn open(path: impl AsRef<Path>) -> Result<Safetensors> {
        let path = path.as_ref();
        if path.extension().is_some_and(|extension| extension == "json") {
            return Safetensors::sharded(path.parent().unwrap_or(Path::new("")), path);
        }
        if !path.is_dir() {
            return Safetensors::from_files(vec![file(&path.display().to_string(), Bytes::open(path)?)?], &[path.display().to_string()]);
        }
        let index = path.join(INDEX);
        if index.is_file() {
            return Safetensors::sharded(path, &index);
        }
        let single = path.join(SINGLE);
        if !single.is_file() {
            return Err(Error::invalid(&path.display().to_string(), "folder", format!("neither {SINGLE} nor {INDEX} found")));
        }
        Safetensors::open(single)
    }

    /// Reads a file in memory; `name` is used in errors.
    pub fn from_bytes(name: &str, bytes: Vec<u8>) -> Result<Safetensors> {
        Safetensors::from_files(vec![file(name, Bytes::Read(bytes))?], &[name.to_owned()])
    }

    fn sharded(folder: &Path, index: &Path) -> Result<Safetensors> {
        let shown = index.display().to_string();
        let invalid = |location: &str, reason: String| Error::invalid(&shown, location, reason);
        let text = std::fs::read(index).map_err(Error::io(index))?;
        let list: serde_json::Value = serde_json::from_slice(&text).map_err(|error| invalid("file", format!("invalid JSON: {error}")))?;
        let map = list.get("weight_map").and_then(|map| map.as_object());
        let map = map.ok_or_else(|| invalid("`weight_map`", "expected an object that maps tensor names to files".into()))?;
        let (mut names, mut paths, mut files) = (Vec::<&str>::new(), Vec::new(), Vec::new());
        let mut numbers = HashMap::new();
        for (tensor, name) in map {
            let location = format!("`weight_map`, tensor `{tensor}`");
            let name = name.as_str().ok_or_else(|| invalid(&location, format!("expected a file name, got {name}")))?;
            if numbers.contains_key(name) {
                continue;
            }
            // The index must not refer to files outside the folder.
            if Path::new(name).file_name() != Some(name.as_ref()) {
                return Err(invalid(&location, format!("`{name}` is not a plain file name (no directories allowed)")));
            }
            let path = folder.join(name);
            if !path.is_file() {
                return Err(invalid(&location, format!("file {} is missing; download the model again", path.display())));
            }
            numbers.insert(name, names.len());
            names.push(name);
            files.push(file(&path.display().to_string(), Bytes::open(&path)?)?);
            paths.push(path.display().to_string());
        }
        let this = Safetensors::from_files(files, &paths)?;
        for (tensor, name) in map {
            let listed = name.as_str().and_then(|name| numbers.get(name));
            if this.by_name.get(tensor) != listed {
                let found = this.by_name.get(tensor).and_then(|file| names.get(*file)).unwrap_or(&"no file");
                return Err(invalid(&format!("`weight_map`, tensor `{tensor}`"), format!("expected in {name}, found in {found}")));
            }
        }
        Ok(this)
    }

    fn from_files(files: Vec<(Bytes, Directory)>, paths: &[String]) -> Result<Safetensors> {
        let mut by_name = HashMap::new();
        for (number, ((_, directory), path)) in files.iter().zip(paths).enumerate() {
            for (info, _) in directory.entries() {
                if let Some(other) = by_name.insert(info.name.clone(), number) {
                    let other = paths.get(other).map_or("", String::as_str);
                    return Err(Error::invalid(path, format!("tensor `{}`", info.name), format!("duplicate of a tensor in {other}")));
                }
            }
        }
        Ok(Safetensors { files, by_name })
    }

    /// Returns the tensors, file by file, by offset.
    pub fn tensors(&self) -> impl Iterator<Item = Tensor<'_>> {
        self.files.iter().flat_map(|(bytes, directory)| directory.tensors(bytes))
    }

    /// Returns a tensor by its name.
    pub fn tensor(&self, name: &str) -> Option<Tensor<'_>> {
        let (bytes, directory) = self.files.get(*self.by_name.get(name)?)?;
        directory.get(name, bytes)
    }
}

fn file(path: &str, bytes: Bytes) -> Result<(Bytes, Directory)> {
    let header = SafeTensors::read_metadata(&bytes);
    let (length, metadata) = header.map_err(|error| Error::invalid(path, "header", format!("{error}; the file may be truncated")))?;
    let mut directory = Directory::default();
    let data = length.checked_add(8);
    for name in metadata.offset_keys() {
        let invalid = |reason: String| Error::invalid(path, format!("tensor `{name}`"), reason);
        let info = metadata.info(&name).ok_or_else(|| invalid("no offsets".into()))?;
        let dtype = dtype(info.dtype).ok_or_else(|| invalid(format!("unsupported type {:?}", info.dtype)))?;
        let size = Kind::Plain(dtype).bytes(&info.shape).map_err(invalid)?;
        let (from, to) = info.data_offsets;
        let range = data.and_then(|data| Some(data.checked_add(from)?..data.checked_add(to)?));
        let range = range.filter(|range| range.end <= bytes.len() && range.start.checked_add(size) == Some(range.end));
        let Some(range) = range else {
            let data = bytes.len().saturating_sub(length);
            return Err(invalid(format!("offsets {from}..{to} must span {size} bytes and lie within the {data} bytes of data")));
        };
        if !directory.add(TensorInfo { name: name.clone(), kind: Kind::Plain(dtype), shape: info.shape.clone() }, range) {
            return Err(invalid("duplicate name".into()));
        }
    }
    Ok((bytes, directory))
}

fn dtype(dtype: Dtype) -> Option<DType> {
    Some(match dtype {
        Dtype::BOOL | Dtype::U8 => DType::U8,
        Dtype::I16 => DType::I16,
        Dtype::I32 => DType::I32,
        Dtype::U32 => DType::U32,
        Dtype::I64 => DType::I64,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::Bf16,
        Dtype::F32 => DType::F32,
        Dtype::F64 => DType::F64,
        Dtype::F8_E4M3 => DType::F8E4M3,
        Dtype::F8_E5M2 => DType::F8E5M2,
        _ => return None,
    })
}

fn safetensors_type(dtype: DType) -> Option<Dtype> {
    Some(match dtype {
        DType::U8 => Dtype::U8,
        DType::I16 => Dtype::I16,
        DType::I32 => Dtype::I32,
        DType::U32 => Dtype::U32,
        DType::I64 => Dtype::I64,
        DType::F16 => Dtype::F16,
        DType::Bf16 => Dtype::BF16,
        DType::F32 => Dtype::F32,
        DType::F64 => Dtype::F64,
        DType::F8E4M3 => Dtype::F8_E4M3,
        DType::F8E5M2 => Dtype::F8_E5M2,
        _ => return None,
    })
}

/// A tensor to write.
#[derive(Debug, Clone)]
pub struct NewTensor<'a> {
    /// The name; unique in its file.
    pub name: &'a str,
    /// The element type.
    pub dtype: DType,
    /// The shape, outermost dimension first.
    pub shape: &'a [usize],
    /// Row-major little-endian elements.
    pub bytes: Cow<'a, [u8]>,
}

/// Writes a safetensors file: to a temporary file beside it, which then takes its name.
pub fn write_safetensors<'a>(path: impl AsRef<Path>, tensors: impl IntoIterator<Item = NewTensor<'a>>) -> Result<()> {
    let path = path.as_ref();
    let shown = path.display().to_string();
    let tensors: Vec<NewTensor<'a>> = tensors.into_iter().collect();
    let mut views = Vec::new();
    for tensor in &tensors {
        let bad = |reason: String| Error::invalid(&shown, format!("tensor `{}`", tensor.name), reason);
        let dtype = safetensors_type(tensor.dtype).ok_or_else(|| bad(format!("type {} is not supported", tensor.dtype)))?;
        if views.iter().any(|(name, _)| *name == tensor.name) {
            return Err(bad("duplicate tensor name".into()));
        }
        let view = TensorView::new(dtype, tensor.shape.to_vec(), &tensor.bytes).map_err(|error| bad(error.to_string()))?;
        views.push((tensor.name, view));
    }
    let name = path.file_name().ok_or_else(|| Error::invalid(&shown, "path", "expected a file name"))?;
    let mut temporary = std::ffi::OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".{}.part", std::process::id()));
    let temporary = path.with_file_name(temporary);
    let written = serialize_to_file(views, None, &temporary)
        .map_err(|error| Error::invalid(&shown, "file", error.to_string()))
        .and_then(|()| std::fs::rename(&temporary, path).map_err(Error::io(path)));
    if written.is_err() {
        // The first error is the one to report.
        let _ = std::fs::remove_file(&temporary);
    }
    written
}
