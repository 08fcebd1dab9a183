//! NumPy `.npy` files in and out.

use std::path::Path;
use std::sync::Arc;

use warpwave_kernels::DType;
use warpwave_weights::npy;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

impl Tensor {
    /// Reads a tensor from a `.npy` file. Booleans become `u8`; other types that tensors do not have are an error.
    pub fn read_npy(path: impl AsRef<Path>, device: &Device) -> Result<Tensor> {
        let array = npy::read_file(path).map_err(|error| Error::Npy(Arc::new(error)))?;
        let dtype = if array.dtype == DType::Bool { DType::U8 } else { array.dtype };
        Tensor::from_bytes(&array.bytes, dtype, &array.shape, device)
    }

    /// Writes the tensor to a `.npy` file, row-major. An interrupted write leaves an existing file as it was; fp8 is an error.
    pub fn write_npy(&self, path: impl AsRef<Path>) -> Result<()> {
        let array = npy::Array { dtype: self.dtype(), shape: self.shape().to_vec(), bytes: self.host_bytes()?.into_owned() };
        npy::write_file(path, &array).map_err(|error| Error::Npy(Arc::new(error)))
    }
}
