//! Safetensors files in and out.

use std::collections::HashMap;
use std::path::Path;

use warpwave_weights::{Kind, NewTensor, Safetensors, write_safetensors};

use crate::device::Device;
use crate::error::{Result, file_error, shape};
use crate::tensor::Tensor;

/// Loads all tensors of a safetensors file, or of a folder with `model.safetensors` or its index, to a device.
pub fn load(path: impl AsRef<Path>, device: &Device) -> Result<HashMap<String, Tensor>> {
    let file = Safetensors::open(path).map_err(file_error)?;
    let loaded = file.tensors().map(|tensor| match tensor.kind {
        Kind::Plain(dtype) => Ok((tensor.name.to_owned(), Tensor::from_bytes(tensor.bytes, dtype, tensor.shape, device)?)),
        Kind::Quant(quant) => Err(shape("load", format!("tensor {} has type {quant}, which safetensors cannot store", tensor.name))),
    });
    loaded.collect()
}

/// Saves tensors to a safetensors file. An interrupted write leaves an existing file as it was.
pub fn save<'a>(tensors: impl IntoIterator<Item = (&'a str, &'a Tensor)>, path: impl AsRef<Path>) -> Result<()> {
    let tensors: Vec<(&str, &Tensor)> = tensors.into_iter().collect();
    let new = tensors
        .iter()
        .map(|(name, tensor)| Ok(NewTensor { name, dtype: tensor.dtype(), shape: tensor.shape(), bytes: tensor.host_bytes()? }));
    write_safetensors(path, new.collect::<Result<Vec<_>>>()?).map_err(file_error)
}
