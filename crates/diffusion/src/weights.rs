//! Weights of a part of a model: found in a file under the names of its layout, checked, and uploaded.

use std::borrow::Cow;
use std::sync::Arc;

use warpwave_kernels::DType;
use warpwave_tensor::{Device, Linear as TensorLinear, Matrix, Random, Tensor};
use warpwave_weights::{Gguf, Kind, Safetensors, Tensor as Stored};

use crate::error::{Result, bad_weight};
use crate::lora::Loras;
use crate::names::{Naming, Transform};
use crate::nn::{Conv2d, LayerNorm, Linear};

/// A file of weights.
pub(crate) enum WeightFile {
    Safetensors(Safetensors),
    Gguf(Gguf),
    /// None: every tensor is random.
    Random,
}

impl WeightFile {
    pub fn tensor(&self, name: &str) -> Option<Stored<'_>> {
        match self {
            WeightFile::Safetensors(file) => file.tensor(name),
            WeightFile::Gguf(file) => file.tensor(name),
            WeightFile::Random => None,
        }
    }

    pub fn tensors(&self) -> Box<dyn Iterator<Item = Stored<'_>> + '_> {
        match self {
            WeightFile::Safetensors(file) => Box::new(file.tensors()),
            WeightFile::Gguf(file) => Box::new(file.tensors()),
            WeightFile::Random => Box::new(std::iter::empty()),
        }
    }
}

/// The weights of one network.
#[derive(Clone)]
pub(crate) struct Part {
    path: String,
    file: Arc<WeightFile>,
    /// What precedes the names in the file.
    prefix: String,
    naming: Naming,
}

/// A tensor in plain elements.
pub(crate) struct Plain<'a> {
    pub dtype: DType,
    pub shape: Vec<usize>,
    pub bytes: Cow<'a, [u8]>,
}

impl Part {
    pub fn new(path: impl Into<String>, file: Arc<WeightFile>, prefix: impl Into<String>, naming: Naming) -> Part {
        Part { path: path.into(), file, prefix: prefix.into(), naming }
    }

    /// The file or folder, for errors.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The same tensors under other names.
    pub fn named(self, naming: Naming) -> Part {
        Part { naming, ..self }
    }

    /// Whether the file has a tensor, by its own name below the prefix.
    pub fn file_has(&self, name: &str) -> bool {
        self.file.tensor(&format!("{}{name}", self.prefix)).is_some()
    }

    /// The shape of a tensor by the file's own name below the prefix.
    pub fn file_shape(&self, name: &str) -> Option<Vec<usize>> {
        self.file.tensor(&format!("{}{name}", self.prefix)).map(|found| found.shape.to_vec())
    }

    /// Elements and bytes of the tensors below the prefix.
    pub fn count(&self) -> (u64, u64) {
        let tensors = self.file.tensors().filter(|tensor| tensor.name.starts_with(&self.prefix));
        let size = |tensor: Stored<'_>| (tensor.shape.iter().product::<usize>() as u64, tensor.bytes.len() as u64);
        tensors.map(size).fold((0, 0), |sum, size| (sum.0 + size.0, sum.1 + size.1))
    }

    fn is_random(&self) -> bool {
        matches!(*self.file, WeightFile::Random)
    }

    fn locate(&self, name: &str) -> Option<(Stored<'_>, Transform)> {
        let found = |(name, transform): (String, Transform)| Some((self.file.tensor(&format!("{}{name}", self.prefix))?, transform));
        self.naming.stored(name).into_iter().find_map(found)
    }

    /// Whether there is a tensor with this name of the diffusers layout.
    pub fn find(&self, name: &str) -> bool {
        self.locate(name).is_some()
    }

    /// The name of a tensor in the file, for errors.
    fn file_name(&self, name: &str) -> String {
        match self.naming.stored(name).first() {
            Some((stored, _)) => format!("{}{stored}", self.prefix),
            None => name.to_owned(),
        }
    }

    pub fn bad(&self, name: &str, reason: impl Into<String>) -> crate::error::Error {
        bad_weight(&self.path, &self.file_name(name), reason)
    }

    fn need(&self, name: &str) -> Result<(Stored<'_>, Transform)> {
        self.locate(name).ok_or_else(|| self.bad(name, "missing tensor"))
    }

    /// The rows that a transform leaves of `rows`.
    fn rows(&self, name: &str, rows: usize, transform: Transform) -> Result<std::ops::Range<usize>> {
        let range = match transform {
            Transform::Part(part, parts) if rows.is_multiple_of(parts) => part * (rows / parts)..(part + 1) * (rows / parts),
            Transform::Rows(start, count) if start <= rows => start..count.map_or(rows, |count| start.saturating_add(count)),
            Transform::Part(_, parts) => return Err(self.bad(name, format!("{rows} rows cannot be split into {parts} parts"))),
            Transform::Rows(start, _) => return Err(self.bad(name, format!("expected more than {start} rows, got {rows}"))),
            _ => 0..rows,
        };
        if range.end > rows {
            return Err(self.bad(name, format!("expected at least {} rows, got {rows}", range.end)));
        }
        Ok(range)
    }

    /// The shape of a tensor, never empty and without zeros.
    pub fn shape(&self, name: &str) -> Result<Vec<usize>> {
        let (stored, transform) = self.need(name)?;
        let mut shape = stored.shape.to_vec();
        if shape.is_empty() || shape.contains(&0) {
            return Err(self.bad(name, format!("unexpected shape {shape:?}")));
        }
        match transform {
            Transform::Transposed => shape.reverse(),
            _ => shape[0] = self.rows(name, shape[0], transform)?.len(),
        }
        Ok(shape)
    }

    /// A tensor's elements as its name in the diffusers layout promises them; fails unless it has this shape. Sizes of 1 at the end do not
    /// count: 1 × 1 convolutions and linear layers have the same weights.
    pub fn plain(&self, name: &str, shape: &[usize]) -> Result<Plain<'_>> {
        let (stored, transform) = self.need(name)?;
        let found = self.shape(name)?;
        let trimmed = |shape: &[usize]| shape.iter().rposition(|size| *size != 1).map_or(0, |last| last + 1);
        if found[..trimmed(&found)] != shape[..trimmed(shape)] {
            return Err(self.bad(name, format!("expected shape {shape:?}, got {found:?}")));
        }
        let (dtype, bytes): (DType, Cow<'_, [u8]>) = match stored.kind {
            Kind::Plain(dtype) => (dtype, Cow::Borrowed(stored.bytes)),
            Kind::Quant(quant) => {
                let (rows, columns) = matrix_shape(stored.shape);
                let matrix = Matrix::quantized(quant, stored.bytes, rows, columns, &Device::Cpu)?;
                let ids: Vec<u32> = (0..rows as u32).collect();
                let rows = matrix.embedding(&Tensor::new(&ids, &[rows], &Device::Cpu)?, DType::F32)?;
                (DType::F32, Cow::Owned(rows.host_bytes()?.into_owned()))
            }
        };
        if !matches!(dtype, DType::F32 | DType::F16 | DType::Bf16 | DType::F64 | DType::F8E4M3 | DType::F8E5M2) {
            return Err(self.bad(name, format!("expected a float type, got {dtype}")));
        }
        let rows = stored.shape[0];
        let row = bytes.len() / rows;
        let bytes = match transform {
            Transform::None => bytes,
            Transform::Transposed => Cow::Owned(transposed(&bytes, rows, dtype.size())),
            Transform::SwapHalves => {
                let middle = rows / 2 * row;
                Cow::Owned([&bytes[middle..], &bytes[..middle]].concat())
            }
            Transform::Part(..) | Transform::Rows(..) => {
                let range = self.rows(name, rows, transform)?;
                let range = range.start * row..range.end * row;
                match bytes {
                    Cow::Borrowed(bytes) => Cow::Borrowed(&bytes[range]),
                    Cow::Owned(bytes) => Cow::Owned(bytes[range].to_vec()),
                }
            }
        };
        Ok(Plain { dtype, shape: shape.to_vec(), bytes })
    }

    /// A quantized matrix as it is stored, if it is one and no rows are taken from it.
    fn quantized(&self, name: &str, shape: [usize; 2], device: &Device) -> Result<Option<Matrix>> {
        let (stored, transform) = self.need(name)?;
        let Kind::Quant(quant) = stored.kind else { return Ok(None) };
        if stored.shape.len() != 2 {
            return Ok(None);
        }
        if self.shape(name)? != shape {
            return Err(self.bad(name, format!("expected shape {shape:?}, got {:?}", stored.shape)));
        }
        let rows = match transform {
            Transform::None => 0..shape[0],
            Transform::Part(..) | Transform::Rows(..) => self.rows(name, stored.shape[0], transform)?,
            Transform::Transposed | Transform::SwapHalves => return Ok(None),
        };
        let row = stored.bytes.len() / stored.shape[0];
        Ok(Some(Matrix::quantized(quant, &stored.bytes[rows.start * row..rows.end * row], shape[0], shape[1], device)?))
    }
}

fn matrix_shape(shape: &[usize]) -> (usize, usize) {
    let columns = shape.last().copied().unwrap_or(1);
    (shape.iter().product::<usize>() / columns.max(1), columns)
}

fn transposed(bytes: &[u8], rows: usize, size: usize) -> Vec<u8> {
    let columns = bytes.len() / size / rows;
    let mut out = vec![0; bytes.len()];
    for (i, element) in bytes.chunks_exact(size).enumerate() {
        let to = (i % columns * rows + i / columns) * size;
        out[to..to + size].copy_from_slice(element);
    }
    out
}

/// A random tensor: matrices and kernels keep the magnitude of their input, scales are 1 and biases 0.
fn random(name: &str, shape: &[usize], dtype: DType, device: &Device) -> Result<Tensor> {
    if shape.len() < 2 {
        return Ok(Tensor::full(if name.ends_with("bias") { 0 } else { 1 }, dtype, shape, device)?);
    }
    let seed = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let inputs = shape[1..].iter().product::<usize>() as f64;
    Ok(Random::new(seed).normal(0.0, inputs.sqrt().recip(), dtype, shape, device)?)
}

/// Loads the weights below a name to a device.
pub(crate) struct Loader<'a> {
    part: &'a Part,
    prefix: String,
    device: &'a Device,
    dtype: DType,
    loras: Option<&'a Loras>,
}

impl<'a> Loader<'a> {
    pub fn new(part: &'a Part, device: &'a Device, dtype: DType, loras: Option<&'a Loras>) -> Loader<'a> {
        Loader { part, prefix: String::new(), device, dtype, loras }
    }

    /// The weights below a name.
    pub fn at(&self, name: &str) -> Loader<'a> {
        Loader { prefix: self.name(name) + ".", ..*self }
    }

    fn name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    pub fn device(&self) -> &'a Device {
        self.device
    }

    pub fn dtype(&self) -> DType {
        self.dtype
    }

    pub fn has(&self, name: &str) -> bool {
        self.part.find(&self.name(name))
    }

    /// A tensor of this shape, in the loader's type.
    pub fn tensor(&self, name: &str, shape: &[usize]) -> Result<Tensor> {
        let name = self.name(name);
        if self.part.is_random() {
            return random(&name, shape, self.dtype, self.device);
        }
        let plain = self.part.plain(&name, shape)?;
        let delta = match self.loras {
            Some(loras) => loras.delta(&name, shape)?,
            None => None,
        };
        let from = |device: &Device| Tensor::from_bytes(&plain.bytes, plain.dtype, shape, device);
        let tensor = match delta {
            Some(delta) => (from(&Device::Cpu)?.cast(DType::F32)? + delta)?.cast(self.dtype)?.to_device(self.device)?,
            None => from(self.device)?.cast(self.dtype)?,
        };
        Ok(tensor)
    }

    /// A linear layer of `inputs` and `outputs` features.
    pub fn linear(&self, name: &str, inputs: usize, outputs: usize, bias: bool) -> Result<Linear> {
        let bias = if bias { Some(self.tensor(&format!("{name}.bias"), &[outputs])?) } else { None };
        let weight = format!("{name}.weight");
        let changed = self.loras.is_some_and(|loras| loras.has(&self.name(&weight)));
        let quantized = if changed || self.part.is_random() {
            None
        } else {
            self.part.quantized(&self.name(&weight), [outputs, inputs], self.device)?
        };
        let matrix = match quantized {
            Some(matrix) => matrix,
            None => Matrix::plain(self.tensor(&weight, &[outputs, inputs])?)?,
        };
        Ok(Linear::new(TensorLinear::new(vec![matrix], bias)?, outputs))
    }

    /// A linear layer whose halves of rows are swapped: what `Tensor::glu` gates first is second in these models.
    pub fn linear_swapped(&self, name: &str, inputs: usize, outputs: usize) -> Result<Linear> {
        let swap = |tensor: Tensor| {
            let half = outputs / 2;
            Tensor::cat(&[tensor.narrow(0, half, half)?, tensor.narrow(0, 0, half)?], 0)
        };
        let weight = swap(self.tensor(&format!("{name}.weight"), &[outputs, inputs])?)?;
        let bias = swap(self.tensor(&format!("{name}.bias"), &[outputs])?)?;
        Ok(Linear::new(TensorLinear::new(vec![Matrix::plain(weight)?], Some(bias))?, outputs))
    }

    /// A convolution with a bias, which keeps the size of images at stride 1.
    pub fn conv(&self, name: &str, inputs: usize, outputs: usize, kernel: usize) -> Result<Conv2d> {
        let weight = self.tensor(&format!("{name}.weight"), &[outputs, inputs, kernel, kernel])?;
        Conv2d::new(&weight, Some(self.tensor(&format!("{name}.bias"), &[outputs])?))
    }

    pub fn conv_without_bias(&self, name: &str, inputs: usize, outputs: usize, kernel: usize) -> Result<Conv2d> {
        Conv2d::new(&self.tensor(&format!("{name}.weight"), &[outputs, inputs, kernel, kernel])?, None)
    }

    /// Scale and shift of a normalization.
    pub fn norm(&self, name: &str, channels: usize, eps: f32) -> Result<LayerNorm> {
        let [weight, bias] = ["weight", "bias"].map(|end| self.tensor(&format!("{name}.{end}"), &[channels]));
        Ok(LayerNorm { weight: weight?, bias: bias?, eps })
    }
}
