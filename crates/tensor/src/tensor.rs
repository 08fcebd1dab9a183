//! Tensors: storage on a device, with a type and a layout.

use std::borrow::Cow;
use std::sync::Arc;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use warpwave_gpu::HostBuffer;
use warpwave_kernels::{DType, Element, Layout, Scalar, View, ViewMut};

use crate::backend::{Backend, Operand, OperandMut, Storage};
use crate::device::Device;
use crate::dim::{self, Dim};
use crate::error::{Result, shape as shape_error, wrong_device, wrong_type};
use crate::gpu::{self, Gpu};

/// A tensor. Clones and views share its storage; writing to shared storage copies it first.
#[derive(Clone)]
pub struct Tensor {
    storage: Arc<Storage>,
    device: Device,
    dtype: DType,
    layout: Layout,
}

impl Storage {
    /// The kind of device, for errors.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Storage::Cpu(_) | Storage::CpuWeights(_) => "cpu",
            Storage::Gpu(_) => "a GPU",
            Storage::Meta(_) => "meta",
        }
    }
}

/// The bytes of a tensor; fails for types that tensors do not have.
pub(crate) fn byte_len(op: &'static str, dtype: DType, layout: &Layout) -> Result<usize> {
    if !DType::COMPUTE.contains(&dtype) {
        return Err(wrong_type(op, "the tensor", dtype, "u8, i16, i32, u32, i64 or a float type"));
    }
    let bytes = layout.len().checked_mul(dtype.size());
    bytes.ok_or_else(|| shape_error(op, format!("a tensor of {dtype} with shape {:?} exceeds the address space", layout.shape())))
}

impl Tensor {
    /// Creates a tensor from elements in row-major order.
    pub fn new<T: Element>(data: &[T], shape: &[usize], device: &Device) -> Result<Tensor> {
        Tensor::from_bytes(bytemuck::cast_slice(data), T::DTYPE, shape, device)
    }

    /// Creates a tensor from the bytes of elements in row-major order.
    pub fn from_bytes(data: &[u8], dtype: DType, shape: &[usize], device: &Device) -> Result<Tensor> {
        let layout = check_bytes(data.len(), dtype, shape)?;
        Ok(Tensor { storage: Arc::new(device.backend().upload(data)?), device: device.clone(), dtype, layout })
    }

    /// Creates a tensor on a GPU from page-locked memory, copied in stream order: in a captured graph, at each launch.
    pub fn from_pinned(data: &HostBuffer<u8>, dtype: DType, shape: &[usize], gpu: &Arc<Gpu>) -> Result<Tensor> {
        let layout = check_bytes(data.len(), dtype, shape)?;
        // A kernel reads host memory directly: a driver copy would take longer.
        let pinned = View::of_bytes(data.view(), dtype, layout)?;
        Tensor::build(&Device::Gpu(gpu.clone()), dtype, shape, |_, out| {
            Ok(gpu.kernels.copy(&gpu.stream, &pinned, &mut gpu::view_mut(out)?)?)
        })
    }

    /// Creates a tensor of zeros.
    pub fn zeros(dtype: DType, shape: &[usize], device: &Device) -> Result<Tensor> {
        let layout = Layout::contiguous(shape)?;
        let bytes = byte_len("zeros", dtype, &layout)?;
        Ok(Tensor { storage: Arc::new(device.backend().alloc_zeroed(bytes)?), device: device.clone(), dtype, layout })
    }

    /// Creates a tensor of ones.
    pub fn ones(dtype: DType, shape: &[usize], device: &Device) -> Result<Tensor> {
        Tensor::full(1, dtype, shape, device)
    }

    /// Creates a tensor with every element set to `value`.
    pub fn full(value: impl Into<Scalar>, dtype: DType, shape: &[usize], device: &Device) -> Result<Tensor> {
        let value = value.into();
        Tensor::build(device, dtype, shape, |backend, out| backend.fill(value, out))
    }

    /// Creates a tensor of zeros with the shape, type and device of this one.
    pub fn zeros_like(&self) -> Result<Tensor> {
        Tensor::zeros(self.dtype, self.shape(), &self.device)
    }

    /// Creates a tensor of ones with the shape, type and device of this one.
    pub fn ones_like(&self) -> Result<Tensor> {
        Tensor::ones(self.dtype, self.shape(), &self.device)
    }

    /// Creates a one-dimensional tensor of `start, start + step, …` up to `end`, which is excluded.
    pub fn arange<T: Element + Into<Scalar>>(start: T, end: T, step: T, device: &Device) -> Result<Tensor> {
        let op = "arange";
        let host = Device::Cpu;
        let count = match (start.into(), end.into(), step.into()) {
            (Scalar::Int(_), Scalar::Int(_), Scalar::Int(0)) => None,
            (Scalar::Int(start), Scalar::Int(end), Scalar::Int(step)) => {
                let distance = end - start;
                let ahead = distance.signum() == step.signum();
                Some(if ahead { (distance / step + i128::from(distance % step != 0)) as f64 } else { 0.0 })
            }
            (start, end, step) => {
                let [start, end, step] = [start, end, step].map(Scalar::to_f64);
                Some(((end - start) / step).ceil()).filter(|count| !count.is_nan()).map(|count| count.max(0.0))
            }
        };
        let count = count.filter(|count| count.is_finite() && *count <= i32::MAX as f64);
        let Some(count) = count else {
            return Err(shape_error(op, "the step must be nonzero, and the range must be finite and have at most 2^31 - 1 elements"));
        };
        let count = count as usize;
        // In the widest type of its kind, then rounded once.
        let values = match (start.into(), step.into()) {
            (Scalar::Int(start), Scalar::Int(step)) => {
                let values: Vec<i64> = (0..count as i128).map(|i| (start + step * i) as i64).collect();
                Tensor::new(&values, &[count], &host)?
            }
            (start, step) => {
                let values: Vec<f64> = (0..count).map(|i| start.to_f64() + i as f64 * step.to_f64()).collect();
                Tensor::new(&values, &[count], &host)?
            }
        };
        values.cast(T::DTYPE)?.to_device(device)
    }

    /// Allocates a contiguous tensor and lets `fill` write it.
    pub(crate) fn build(
        device: &Device,
        dtype: DType,
        shape: &[usize],
        fill: impl FnOnce(&dyn Backend, &mut OperandMut<'_>) -> Result<()>,
    ) -> Result<Tensor> {
        let layout = Layout::contiguous(shape)?;
        let backend = device.backend();
        let mut storage = backend.alloc(byte_len("alloc", dtype, &layout)?)?;
        fill(backend, &mut OperandMut::new(&mut storage, dtype, layout))?;
        Ok(Tensor { storage: Arc::new(storage), device: device.clone(), dtype, layout })
    }

    /// The tensor as a backend reads it.
    pub(crate) fn operand(&self) -> Operand<'_> {
        Operand { storage: &self.storage, dtype: self.dtype, layout: self.layout }
    }

    /// The tensor as a backend writes it. Shared storage is copied first.
    pub(crate) fn operand_mut(&mut self) -> Result<OperandMut<'_>> {
        if Arc::get_mut(&mut self.storage).is_none() {
            *self = self.copied()?;
        }
        let (dtype, layout) = (self.dtype, self.layout);
        match Arc::get_mut(&mut self.storage) {
            Some(storage) => Ok(OperandMut::new(storage, dtype, layout)),
            None => Err(shape_error("write", "the storage is shared with another tensor; copy the tensor first")),
        }
    }

    /// Returns the sizes of the dimensions.
    pub fn shape(&self) -> &[usize] {
        self.layout.shape()
    }

    /// Returns the number of dimensions.
    pub fn rank(&self) -> usize {
        self.layout.shape().len()
    }

    /// Returns the size of a dimension; 1 if the dimension does not exist.
    pub fn size(&self, dim: impl Dim) -> usize {
        dim.index(self.rank()).map_or(1, |dim| self.shape()[dim])
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.layout.len()
    }

    /// Whether the tensor has no elements.
    pub fn is_empty(&self) -> bool {
        self.layout.is_empty()
    }

    /// Returns the element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the layout of the elements in the storage.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    fn with_layout(&self, layout: Layout) -> Tensor {
        Tensor { layout, ..self.clone() }
    }

    /// Returns a view of `len` positions of a dimension, from `start` on.
    pub fn narrow(&self, dim: impl Dim, start: usize, len: usize) -> Result<Tensor> {
        let dim = dim::index("narrow", dim, self.shape())?;
        Ok(self.with_layout(self.layout.narrow(dim, start, len)?))
    }

    /// Returns a view with two dimensions swapped.
    pub fn transpose(&self, a: impl Dim, b: impl Dim) -> Result<Tensor> {
        let (a, b) = (dim::index("transpose", a, self.shape())?, dim::index("transpose", b, self.shape())?);
        Ok(self.with_layout(self.layout.transpose(a, b)?))
    }

    /// Returns a view of a matrix, or of a batch of them, with its last two dimensions swapped.
    pub fn t(&self) -> Result<Tensor> {
        self.transpose(-2, -1)
    }

    /// Returns a view with the dimensions in another order.
    pub fn permute(&self, order: &[impl Dim]) -> Result<Tensor> {
        let indices = dim::indices("permute", order, self.shape())?;
        if indices.len() != self.rank() {
            return Err(shape_error("permute", format!("expected {} dimensions, got {}", self.rank(), indices.len())));
        }
        let [sizes, strides] = [self.layout.shape(), self.layout.strides()].map(|all| indices.iter().map(|d| all[*d]).collect::<Vec<_>>());
        Ok(self.with_layout(Layout::new(&sizes, &strides, self.layout.offset())?))
    }

    /// Returns a view with a dimension of size 1 inserted before `dim`; `-1` appends it.
    pub fn unsqueeze(&self, dim: impl Dim) -> Result<Tensor> {
        let grown = vec![1; self.rank() + 1];
        let dim = dim::index("unsqueeze", dim, &grown)?;
        let (mut sizes, mut strides) = (self.layout.shape().to_vec(), self.layout.strides().to_vec());
        sizes.insert(dim, 1);
        strides.insert(dim, 0);
        Ok(self.with_layout(Layout::new(&sizes, &strides, self.layout.offset())?))
    }

    /// Returns a view without a dimension of size 1.
    pub fn squeeze(&self, dim: impl Dim) -> Result<Tensor> {
        let dim = dim::index("squeeze", dim, self.shape())?;
        if self.shape()[dim] != 1 {
            return Err(shape_error("squeeze", format!("dimension {dim} of shape {:?} must have size 1", self.shape())));
        }
        let (mut sizes, mut strides) = (self.layout.shape().to_vec(), self.layout.strides().to_vec());
        sizes.remove(dim);
        strides.remove(dim);
        Ok(self.with_layout(Layout::new(&sizes, &strides, self.layout.offset())?))
    }

    /// Returns a view broadcast to a larger shape.
    pub fn broadcast_to(&self, shape: &[usize]) -> Result<Tensor> {
        Ok(self.with_layout(self.layout.broadcast_to(shape)?))
    }

    /// Returns the same elements in another shape: a view if they are contiguous or only the last dimension is split, else a copy.
    pub fn reshape(&self, shape: &[usize]) -> Result<Tensor> {
        let layout = Layout::contiguous(shape)?;
        if layout.len() != self.len() {
            return Err(shape_error("reshape", format!("cannot reshape {:?} to {shape:?}: different number of elements", self.shape())));
        }
        if self.layout.is_contiguous() {
            return Ok(self.with_layout(Layout::new(shape, layout.strides(), self.layout.offset())?));
        }
        if let Some((last, outer)) = self.shape().split_last()
            && shape.len() > outer.len()
            && shape.starts_with(outer)
        {
            let inner = Layout::contiguous(&shape[outer.len()..])?;
            debug_assert_eq!(inner.len(), *last);
            let stride = self.layout.strides()[outer.len()];
            let strides: Vec<usize> =
                self.layout.strides()[..outer.len()].iter().copied().chain(inner.strides().iter().map(|s| s * stride)).collect();
            return Ok(self.with_layout(Layout::new(shape, &strides, self.layout.offset())?));
        }
        self.contiguous()?.reshape(shape)
    }

    /// Returns a contiguous copy.
    pub fn copied(&self) -> Result<Tensor> {
        Tensor::build(&self.device, self.dtype, self.shape(), |backend, out| backend.copy(&self.operand(), out))
    }

    /// Returns the tensor itself if it is contiguous, else a contiguous copy.
    pub fn contiguous(&self) -> Result<Tensor> {
        if self.layout.is_contiguous() { Ok(self.clone()) } else { self.copied() }
    }

    /// Concatenates tensors along a dimension; all other dimensions must match.
    pub fn cat(parts: &[Tensor], dim: impl Dim) -> Result<Tensor> {
        let op = "cat";
        let first = parts.first().ok_or_else(|| shape_error(op, "expected at least one tensor"))?;
        let dim = dim::index(op, dim, first.shape())?;
        let mut shape = first.shape().to_vec();
        for part in &parts[1..] {
            let fits = part.rank() == shape.len() && (0..shape.len()).all(|d| d == dim || part.shape()[d] == shape[d]);
            if !fits {
                let reason = format!("cannot concatenate {:?} and {:?} along dimension {dim}", first.shape(), part.shape());
                return Err(shape_error(op, reason));
            }
            first.check_same_kind(op, "a tensor", part)?;
        }
        if parts.len() == 1 {
            return Ok(first.clone());
        }
        shape[dim] = parts.iter().map(|part| part.shape()[dim]).sum();
        Tensor::build(&first.device, first.dtype, &shape, |backend, out| {
            let mut start = 0;
            for part in parts {
                let len = part.shape()[dim];
                let layout = out.layout.narrow(dim, start, len)?;
                backend.copy(&part.operand(), &mut OperandMut::new(out.storage, out.dtype, layout))?;
                start += len;
            }
            Ok(())
        })
    }

    /// Concatenates tensors of one shape along a new dimension.
    pub fn stack(parts: &[Tensor], dim: impl Dim) -> Result<Tensor> {
        let first = parts.first().ok_or_else(|| shape_error("stack", "expected at least one tensor"))?;
        let dim = dim::index("stack", dim, &vec![1; first.rank() + 1])?;
        let parts = parts.iter().map(|part| part.unsqueeze(dim)).collect::<Result<Vec<_>>>()?;
        Tensor::cat(&parts, dim)
    }

    /// Returns the elements in another type: floats round to nearest, and truncate and saturate to integers; integers wrap.
    pub fn cast(&self, dtype: DType) -> Result<Tensor> {
        if self.dtype == dtype {
            return Ok(self.clone());
        }
        Tensor::build(&self.device, dtype, self.shape(), |backend, out| backend.cast(&self.operand(), out))
    }

    /// Returns a copy on another device, or the tensor itself if it is there. Between GPUs the copy is queued.
    pub fn to_device(&self, device: &Device) -> Result<Tensor> {
        if self.device == *device {
            return Ok(self.clone());
        }
        let dense = self.contiguous()?;
        let storage = self.device.transfer(&dense.operand(), device)?;
        let layout = Layout::contiguous(self.shape())?;
        Ok(Tensor { storage: Arc::new(storage), device: device.clone(), dtype: self.dtype, layout })
    }

    /// Returns the elements in row-major order. On a GPU this waits for queued work.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        self.check_element::<T>("to_vec")?;
        let bytes = self.host_bytes()?;
        let mut elements = vec![T::zeroed(); self.len()];
        bytemuck::cast_slice_mut(&mut elements).copy_from_slice(&bytes);
        Ok(elements)
    }

    /// Returns the only element of a tensor of one element.
    pub fn to_scalar<T: Element>(&self) -> Result<T> {
        match self.to_vec::<T>()?[..] {
            [value] => Ok(value),
            _ => Err(shape_error("to_scalar", format!("expected one element, got shape {:?}", self.shape()))),
        }
    }

    /// Returns the elements of a tensor of `f32`, `f16` or `bf16` as `f32`.
    pub fn floats(&self) -> Result<Vec<f32>> {
        let mut floats = vec![0.0; self.len()];
        match self.dtype {
            DType::F32 => return self.to_vec(),
            DType::F16 => self.to_vec::<f16>()?.convert_to_f32_slice(&mut floats),
            DType::Bf16 => self.to_vec::<bf16>()?.convert_to_f32_slice(&mut floats),
            found => return Err(wrong_type("floats", "the tensor", found, "f32, f16 or bf16")),
        }
        Ok(floats)
    }

    /// Returns the bytes of the elements in row-major order: borrowed if the tensor is contiguous and on the CPU.
    pub fn host_bytes(&self) -> Result<Cow<'_, [u8]>> {
        self.device.backend().download(&self.operand())
    }

    /// Returns the elements of a tensor on the CPU, borrowed if they are contiguous.
    pub fn host<T: Element>(&self) -> Result<Cow<'_, [T]>> {
        self.check_element::<T>("read")?;
        if self.device != Device::Cpu {
            return Err(wrong_device("read", "the tensor", self.device.name(), "cpu"));
        }
        Ok(match self.host_bytes()? {
            // Host storage is aligned for every element type.
            Cow::Borrowed(bytes) => Cow::Borrowed(bytemuck::cast_slice(bytes)),
            Cow::Owned(bytes) => {
                let mut elements = vec![T::zeroed(); self.len()];
                bytemuck::cast_slice_mut(&mut elements).copy_from_slice(&bytes);
                Cow::Owned(elements)
            }
        })
    }

    /// Returns a tensor on a GPU as a view that kernels read.
    pub fn view(&self) -> Result<View<'_>> {
        gpu::view(&self.operand())
    }

    /// Returns a tensor on a GPU as a view that kernels write. Shared storage is copied first.
    pub fn view_mut(&mut self) -> Result<ViewMut<'_>> {
        let operand = self.operand_mut()?;
        gpu::into_view_mut(operand)
    }

    fn check_element<T: Element>(&self, op: &'static str) -> Result<()> {
        if T::DTYPE == self.dtype { Ok(()) } else { Err(wrong_type(op, "the tensor", self.dtype, T::DTYPE.name())) }
    }

    /// Fails unless both tensors have one type and device.
    pub(crate) fn check_same_kind(&self, op: &'static str, what: &'static str, other: &Tensor) -> Result<()> {
        if self.dtype != other.dtype {
            return Err(wrong_type(op, what, other.dtype, self.dtype.name()));
        }
        self.check_same_device(op, what, other)
    }

    /// Fails unless both tensors are on one device.
    pub(crate) fn check_same_device(&self, op: &'static str, what: &'static str, other: &Tensor) -> Result<()> {
        if self.device == other.device { Ok(()) } else { Err(wrong_device(op, what, other.device.name(), self.device.name())) }
    }
}

fn check_bytes(len: usize, dtype: DType, shape: &[usize]) -> Result<Layout> {
    let layout = Layout::contiguous(shape)?;
    let expected = byte_len("new tensor", dtype, &layout)?;
    if expected != len {
        return Err(shape_error("new tensor", format!("{dtype}{shape:?} needs {expected} bytes, got {len}")));
    }
    Ok(layout)
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{:?} on {}", self.dtype, self.shape(), self.device)
    }
}
