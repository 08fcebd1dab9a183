//! Safetensors: one file, or the files of a folder.

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

/// What a folder's list of files is called.
const INDEX: &str = "model.safetensors.index.json";
/// What a folder's only file is called.
const SINGLE: &str = "model.safetensors";

/// The tensors of one file or of several.
pub struct Safetensors {
    files: Vec<(Bytes, Directory)>,
    /// Which file has a tensor.
    by_name: HashMap<String, usize>,
}

impl fmt::Debug for Safetensors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Safetensors").field("files", &self.files.len()).field("tensors", &self.by_name.len()).finish()
    }
}

impl Safetensors {
    /// Opens a file, or a folder with `model.safetensors` or with the files that `model.safetensors.index.json` lists.
    pub fn open(path: impl AsRef<Path>) -> Result<Safetensors> {
        let path = path.as_ref();
        if !path.is_dir() {
            return Safetensors::from_files(vec![file(&path.display().to_string(), Bytes::open(path)?)?], &[path.display().to_string()]);
        }
        let index = path.join(INDEX);
        if index.is_file() {
            return Safetensors::sharded(path, &index);
        }
        let single = path.join(SINGLE);
        if !single.is_file() {
            return Err(Error::bad(&path.display().to_string(), "the folder", format!("there is neither {SINGLE} nor {INDEX} in it")));
        }
        Safetensors::open(single)
    }

    /// The same for a file that is in memory; `name` is for errors.
    pub fn from_bytes(name: &str, bytes: Vec<u8>) -> Result<Safetensors> {
        Safetensors::from_files(vec![file(name, Bytes::Read(bytes))?], &[name.to_owned()])
    }

    fn sharded(folder: &Path, index: &Path) -> Result<Safetensors> {
        let shown = index.display().to_string();
        let bad = |place: &str, reason: String| Error::bad(&shown, place, reason);
        let text = std::fs::read(index).map_err(Error::io(index))?;
        let list: serde_json::Value = serde_json::from_slice(&text).map_err(|error| bad("the text", format!("it is no JSON: {error}")))?;
        let map = list.get("weight_map").and_then(|map| map.as_object());
        let map = map.ok_or_else(|| bad("`weight_map`", "it should be an object of names and files".into()))?;
        let (mut names, mut paths, mut files) = (Vec::<&str>::new(), Vec::new(), Vec::new());
        let mut numbers = HashMap::new();
        for (tensor, name) in map {
            let place = format!("`weight_map`, tensor `{tensor}`");
            let name = name.as_str().ok_or_else(|| bad(&place, format!("its file should be a text, and is {name}")))?;
            if numbers.contains_key(name) {
                continue;
            }
            // A list must not lead out of its folder.
            if Path::new(name).file_name() != Some(name.as_ref()) {
                return Err(bad(&place, format!("`{name}` is no file of this folder")));
            }
            let path = folder.join(name);
            if !path.is_file() {
                return Err(bad(&place, format!("its file {} is missing; download it again", path.display())));
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
                let there = this.by_name.get(tensor).and_then(|file| names.get(*file)).unwrap_or(&"no file");
                return Err(bad(&format!("`weight_map`, tensor `{tensor}`"), format!("it should be in {name}, and is in {there}")));
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
                    return Err(Error::bad(path, format!("tensor `{}`", info.name), format!("the name is in {other} already")));
                }
            }
        }
        Ok(Safetensors { files, by_name })
    }

    /// The tensors, file by file, in the order of their bytes.
    pub fn tensors(&self) -> impl Iterator<Item = Tensor<'_>> {
        self.files.iter().flat_map(|(bytes, directory)| directory.tensors(bytes))
    }

    /// A tensor by its name.
    pub fn tensor(&self, name: &str) -> Option<Tensor<'_>> {
        let (bytes, directory) = self.files.get(*self.by_name.get(name)?)?;
        directory.get(name, bytes)
    }
}

fn file(path: &str, bytes: Bytes) -> Result<(Bytes, Directory)> {
    let header = SafeTensors::read_metadata(&bytes);
    let (length, metadata) = header.map_err(|error| Error::bad(path, "the header", format!("{error}; is the file whole?")))?;
    let mut directory = Directory::default();
    let data = length.checked_add(8);
    for name in metadata.offset_keys() {
        let bad = |reason: String| Error::bad(path, format!("tensor `{name}`"), reason);
        let info = metadata.info(&name).ok_or_else(|| bad("it has no place".into()))?;
        let dtype = dtype(info.dtype).ok_or_else(|| bad(format!("type {:?} is not read", info.dtype)))?;
        let size = Kind::Plain(dtype).bytes(&info.shape).map_err(bad)?;
        let (from, to) = info.data_offsets;
        let range = data.and_then(|data| Some(data.checked_add(from)?..data.checked_add(to)?));
        let range = range.filter(|range| range.end <= bytes.len() && range.start.checked_add(size) == Some(range.end));
        let Some(range) = range else {
            let reason = format!("{from}..{to} should be {size} bytes of the {} behind the header", bytes.len().saturating_sub(length));
            return Err(bad(reason));
        };
        if !directory.add(TensorInfo { name: name.clone(), kind: Kind::Plain(dtype), shape: info.shape.clone() }, range) {
            return Err(bad("the name is there twice".into()));
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
        #[allow(unreachable_patterns)]
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
        let bad = |reason: String| Error::bad(&shown, format!("tensor `{}`", tensor.name), reason);
        let dtype = safetensors_type(tensor.dtype).ok_or_else(|| bad(format!("type {} is not supported", tensor.dtype)))?;
        if views.iter().any(|(name, _)| *name == tensor.name) {
            return Err(bad("the name is not unique".into()));
        }
        let view = TensorView::new(dtype, tensor.shape.to_vec(), &tensor.bytes).map_err(|error| bad(error.to_string()))?;
        views.push((tensor.name, view));
    }
    let name = path.file_name().ok_or_else(|| Error::bad(&shown, "path", "expected a file name"))?;
    let mut temporary = std::ffi::OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".{}.part", std::process::id()));
    let temporary = path.with_file_name(temporary);
    let written = serialize_to_file(views, None, &temporary)
        .map_err(|error| Error::bad(&shown, "file", error.to_string()))
        .and_then(|()| std::fs::rename(&temporary, path).map_err(Error::io(path)));
    if written.is_err() {
        // The first error is the one to report.
        let _ = std::fs::remove_file(&temporary);
    }
    written
}
