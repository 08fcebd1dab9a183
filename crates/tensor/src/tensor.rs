//! Tensors: memory on a device, with a type and a layout.

use std::borrow::Cow;
use std::sync::Arc;

use bytemuck::Pod;
use warpwave_gpu::{Buffer, HostBuffer, Slice};
use warpwave_kernels::{DType, Element, Layout, View, ViewMut};

use crate::device::{Device, Gpu, ask_for};
use crate::error::{Error, Result, shape as bad_shape};

/// Memory. What the CPU has lies at multiples of 8 bytes, so that it can be read as elements of any type.
enum Storage {
    Cpu(Vec<u64>),
    Gpu(Buffer<u8>),
}

/// A tensor. Clones and views share its memory; whoever writes to shared memory gets a copy of its own first.
#[derive(Clone)]
pub struct Tensor {
    storage: Arc<Storage>,
    device: Device,
    dtype: DType,
    layout: Layout,
}

/// Bytes from which on it is asked whether they can be had. Smaller ones the allocator keeps: asking would cost time.
const LARGE: usize = 64 << 20;

fn words(bytes: usize) -> Result<Vec<u64>> {
    if bytes >= LARGE {
        ask_for(bytes)?;
    }
    Ok(vec![0; bytes.div_ceil(8)])
}

/// The elements that a layout gives, in their order.
fn gather<T: Pod>(from: &[T], layout: &Layout) -> Vec<T> {
    let (shape, strides) = (layout.shape(), layout.strides());
    let mut out = Vec::with_capacity(layout.len());
    if layout.is_empty() {
        return out;
    }
    let Some((inner, inner_stride)) = shape.last().copied().zip(strides.last().copied()) else {
        return vec![from[layout.offset()]];
    };
    let outer = shape.len() - 1;
    let mut index = vec![0; outer];
    loop {
        let at = layout.offset() + index.iter().zip(strides).map(|(i, stride)| i * stride).sum::<usize>();
        match inner_stride {
            1 => out.extend_from_slice(&from[at..at + inner]),
            _ => out.extend((0..inner).map(|i| from[at + i * inner_stride])),
        }
        let Some(d) = (0..outer).rev().find(|d| index[*d] + 1 < shape[*d]) else { return out };
        index[d] += 1;
        index[d + 1..].fill(0);
    }
}

impl Tensor {
    /// A tensor of these elements, row by row.
    pub fn new<T: Element>(data: &[T], shape: &[usize], device: &Device) -> Result<Tensor> {
        Tensor::from_bytes(bytemuck::cast_slice(data), T::DTYPE, shape, device)
    }

    /// A tensor of elements in bytes, row by row.
    pub fn from_bytes(data: &[u8], dtype: DType, shape: &[usize], device: &Device) -> Result<Tensor> {
        let layout = Layout::contiguous(shape)?;
        let expected = layout.len().checked_mul(dtype.size());
        if expected != Some(data.len()) {
            let reason = format!("{} bytes are no {dtype} of {shape:?}", data.len());
            return Err(bad_shape("a new tensor", reason));
        }
        let storage = match device {
            Device::Cpu => {
                let mut memory = words(data.len())?;
                bytemuck::cast_slice_mut(&mut memory)[..data.len()].copy_from_slice(data);
                Storage::Cpu(memory)
            }
            Device::Gpu(gpu) => Storage::Gpu(gpu.stream.upload(data)?),
        };
        Ok(Tensor { storage: Arc::new(storage), device: device.clone(), dtype, layout })
    }

    /// A tensor on a GPU of elements in page-locked memory, row by row, which are copied in the order of its stream: in a graph, each time
    /// that it is launched.
    pub fn from_pinned(data: &HostBuffer<u8>, dtype: DType, shape: &[usize], gpu: &Arc<Gpu>) -> Result<Tensor> {
        let layout = Layout::contiguous(shape)?;
        if layout.len().checked_mul(dtype.size()) != Some(data.len()) {
            return Err(bad_shape("a new tensor", format!("{} bytes are no {dtype} of {shape:?}", data.len())));
        }
        // A kernel reads it where it is: a copy by the driver would take longer.
        let there = View::of_bytes(data.view(), dtype, layout)?;
        Tensor::on_gpu(gpu, dtype, shape, |out| gpu.kernels.copy(&gpu.stream, &there, out))
    }

    /// A tensor of zeros.
    pub fn zeros(dtype: DType, shape: &[usize], device: &Device) -> Result<Tensor> {
        let layout = Layout::contiguous(shape)?;
        let Some(bytes) = layout.len().checked_mul(dtype.size()) else {
            return Err(bad_shape("a new tensor", format!("{dtype} of {shape:?} are more bytes than can be addressed")));
        };
        let storage = match device {
            Device::Cpu => Storage::Cpu(words(bytes)?),
            Device::Gpu(gpu) => Storage::Gpu(gpu.stream.alloc_zeroed(bytes)?),
        };
        Ok(Tensor { storage: Arc::new(storage), device: device.clone(), dtype, layout })
    }

    /// A tensor on the CPU that `fill` writes.
    pub(crate) fn on_cpu<T: Element>(shape: &[usize], fill: impl FnOnce(&mut [T]) -> Result<()>) -> Result<Tensor> {
        let layout = Layout::contiguous(shape)?;
        let mut memory = words(layout.len() * size_of::<T>())?;
        fill(&mut bytemuck::cast_slice_mut(&mut memory)[..layout.len()])?;
        Ok(Tensor { storage: Arc::new(Storage::Cpu(memory)), device: Device::Cpu, dtype: T::DTYPE, layout })
    }

    /// A tensor on a GPU that `fill` queues the writing of.
    pub(crate) fn on_gpu(
        gpu: &Arc<Gpu>,
        dtype: DType,
        shape: &[usize],
        fill: impl FnOnce(&mut ViewMut<'_>) -> warpwave_kernels::Result<()>,
    ) -> Result<Tensor> {
        let layout = Layout::contiguous(shape)?;
        let mut memory = gpu.alloc(layout.len() * dtype.size())?;
        fill(&mut ViewMut::of_bytes(&mut memory, dtype, layout)?)?;
        Ok(Tensor { storage: Arc::new(Storage::Gpu(memory)), device: Device::Gpu(gpu.clone()), dtype, layout })
    }

    /// The sizes of the dimensions.
    pub fn shape(&self) -> &[usize] {
        self.layout.shape()
    }

    /// The size of one dimension.
    pub fn size(&self, d: usize) -> usize {
        self.layout.shape().get(d).copied().unwrap_or(1)
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.layout.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.layout.is_empty()
    }

    /// The type of its elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Where it is.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Where its elements lie in its memory.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    fn with_layout(&self, layout: Layout) -> Tensor {
        Tensor { layout, ..self.clone() }
    }

    /// Some places of a dimension, without a copy.
    pub fn narrow(&self, d: usize, start: usize, len: usize) -> Result<Tensor> {
        Ok(self.with_layout(self.layout.narrow(d, start, len)?))
    }

    /// The same behind a dimension of one, without a copy.
    pub(crate) fn as_one(&self) -> Result<Tensor> {
        let sizes: Vec<usize> = [1].iter().chain(self.layout.shape()).copied().collect();
        let strides: Vec<usize> = [0].iter().chain(self.layout.strides()).copied().collect();
        Ok(self.with_layout(Layout::new(&sizes, &strides, self.layout.offset())?))
    }

    /// Two dimensions exchanged, without a copy.
    pub fn transpose(&self, a: usize, b: usize) -> Result<Tensor> {
        Ok(self.with_layout(self.layout.transpose(a, b)?))
    }

    /// The dimensions in another order, without a copy: each of them once.
    pub fn permute(&self, order: &[usize]) -> Result<Tensor> {
        let rank = self.shape().len();
        let mut sorted = order.to_vec();
        sorted.sort_unstable();
        if sorted != (0..rank).collect::<Vec<_>>() {
            return Err(bad_shape("permute", format!("{order:?} is no order of the dimensions of {:?}", self.shape())));
        }
        let [sizes, strides] = [self.layout.shape(), self.layout.strides()].map(|all| order.iter().map(|d| all[*d]).collect::<Vec<_>>());
        Ok(self.with_layout(Layout::new(&sizes, &strides, self.layout.offset())?))
    }

    /// Repeated to a larger shape, without a copy.
    pub fn broadcast_to(&self, shape: &[usize]) -> Result<Tensor> {
        Ok(self.with_layout(self.layout.broadcast_to(shape)?))
    }

    /// The same elements in another shape: without a copy if they lie one behind the other, or if the last dimension alone is split.
    pub fn reshape(&self, shape: &[usize]) -> Result<Tensor> {
        let layout = Layout::contiguous(shape)?;
        if layout.len() != self.len() {
            return Err(bad_shape("reshape", format!("{:?} are not as many elements as {shape:?}", self.shape())));
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
            let step = self.layout.strides()[outer.len()];
            let strides: Vec<usize> =
                self.layout.strides()[..outer.len()].iter().copied().chain(inner.strides().iter().map(|s| s * step)).collect();
            return Ok(self.with_layout(Layout::new(shape, &strides, self.layout.offset())?));
        }
        self.contiguous()?.reshape(shape)
    }

    /// A copy in memory of its own.
    pub fn copied(&self) -> Result<Tensor> {
        match &self.device {
            Device::Cpu => Tensor::from_bytes(&self.host_bytes()?, self.dtype, self.shape(), &Device::Cpu),
            Device::Gpu(gpu) => {
                let (kernels, stream, view) = (&gpu.kernels, &gpu.stream, self.view()?);
                Tensor::on_gpu(gpu, self.dtype, self.shape(), |out| kernels.copy(stream, &view, out))
            }
        }
    }

    /// The elements one behind the other: a copy if they are not.
    pub fn contiguous(&self) -> Result<Tensor> {
        if self.layout.is_contiguous() { Ok(self.clone()) } else { self.copied() }
    }

    /// Tensors side by side along a dimension, in which alone they may differ.
    pub fn cat(parts: &[Tensor], d: usize) -> Result<Tensor> {
        let op = "cat";
        let first = parts.first().ok_or_else(|| bad_shape(op, "there is nothing to put together"))?;
        let mut shape = first.shape().to_vec();
        if d >= shape.len() {
            return Err(bad_shape(op, format!("there is no dimension {d} in {shape:?}")));
        }
        for part in &parts[1..] {
            let fits = part.shape().len() == shape.len() && (0..shape.len()).all(|other| other == d || part.size(other) == shape[other]);
            if !fits {
                return Err(bad_shape(op, format!("{:?} beside {:?} along {d}", part.shape(), first.shape())));
            }
            if part.dtype != first.dtype {
                return Err(Error::Type { op, what: "a part", found: part.dtype, expected: first.dtype.name() });
            }
            if part.device != first.device {
                let (found, expected) = (part.device.name().to_owned(), first.device.name().to_owned());
                return Err(Error::Device { op, what: "a part", found, expected });
            }
        }
        if parts.len() == 1 {
            return Ok(first.clone());
        }
        shape[d] = parts.iter().map(|part| part.size(d)).sum();
        match &first.device {
            Device::Cpu => {
                let outer: usize = shape[..d].iter().product();
                let pieces = parts.iter().map(Tensor::host_bytes).collect::<Result<Vec<_>>>()?;
                let mut bytes = Vec::with_capacity(pieces.iter().map(|piece| piece.len()).sum());
                for row in 0..outer {
                    for piece in &pieces {
                        let len = piece.len() / outer;
                        bytes.extend_from_slice(&piece[row * len..][..len]);
                    }
                }
                Tensor::from_bytes(&bytes, first.dtype, &shape, &Device::Cpu)
            }
            Device::Gpu(gpu) => {
                let mut out = Tensor::on_gpu(gpu, first.dtype, &shape, |_| Ok(()))?;
                let mut at = 0;
                for part in parts {
                    let layout = out.layout.narrow(d, at, part.size(d))?;
                    gpu.kernels.copy(&gpu.stream, &part.view()?, &mut out.view_mut_of(layout)?)?;
                    at += part.size(d);
                }
                Ok(out)
            }
        }
    }

    /// A copy on another device; the tensor itself where it is there already. From one GPU to another it is queued behind the work before.
    pub fn to_device(&self, device: &Device) -> Result<Tensor> {
        if self.device == *device {
            return Ok(self.clone());
        }
        if let (Device::Gpu(from), Device::Gpu(to)) = (&self.device, device) {
            let dense = self.contiguous()?;
            let mut memory = to.alloc(self.len() * self.dtype.size())?;
            from.stream.copy_to_peer(dense.gpu_memory()?, &to.stream, &mut memory)?;
            let layout = Layout::contiguous(self.shape())?;
            return Ok(Tensor { storage: Arc::new(Storage::Gpu(memory)), device: device.clone(), dtype: self.dtype, layout });
        }
        Tensor::from_bytes(&self.host_bytes()?, self.dtype, self.shape(), device)
    }

    /// Its elements, row by row. Of a GPU's tensor they are copied once all work before is done.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        if T::DTYPE != self.dtype {
            return Err(Error::Type { op: "to_vec", what: "the tensor", found: self.dtype, expected: T::DTYPE.name() });
        }
        match &*self.storage {
            Storage::Cpu(_) => Ok(self.host::<T>()?.into_owned()),
            Storage::Gpu(_) => {
                let mut elements = vec![T::zeroed(); self.len()];
                bytemuck::cast_slice_mut(&mut elements).copy_from_slice(&self.host_bytes()?);
                Ok(elements)
            }
        }
    }

    /// Its elements in bytes, row by row.
    pub fn host_bytes(&self) -> Result<Cow<'_, [u8]>> {
        match &*self.storage {
            Storage::Cpu(_) => Ok(match self.dtype.size() {
                1 => self.host_any::<u8>(),
                2 => as_bytes(self.host_any::<u16>()),
                4 => as_bytes(self.host_any::<u32>()),
                _ => as_bytes(self.host_any::<u64>()),
            }),
            Storage::Gpu(_) => {
                let Device::Gpu(gpu) = &self.device else { return Err(bad_shape("a copy", "it left its device")) };
                Ok(Cow::Owned(gpu.stream.download(self.contiguous()?.gpu_memory()?)?))
            }
        }
    }

    fn host_any<T: Pod>(&self) -> Cow<'_, [T]> {
        let Storage::Cpu(memory) = &*self.storage else { return Cow::Borrowed(&[]) };
        let elements: &[T] = bytemuck::cast_slice(memory);
        if self.layout.is_empty() {
            return Cow::Borrowed(&[]);
        }
        if self.layout.is_contiguous() {
            let start = self.layout.offset();
            return Cow::Borrowed(&elements[start..start + self.len()]);
        }
        Cow::Owned(gather(elements, &self.layout))
    }

    /// The elements of a tensor on the CPU: borrowed if they lie one behind the other.
    pub fn host<T: Element>(&self) -> Result<Cow<'_, [T]>> {
        if T::DTYPE != self.dtype {
            return Err(Error::Type { op: "reading", what: "the tensor", found: self.dtype, expected: T::DTYPE.name() });
        }
        match &self.device {
            Device::Cpu => Ok(self.host_any::<T>()),
            other => Err(Error::Device { op: "reading", what: "the tensor", found: other.name().to_owned(), expected: "cpu".to_owned() }),
        }
    }

    /// The elements of a tensor on the CPU that lie one behind the other.
    pub(crate) fn host_slice<T: Element>(&self) -> Result<&[T]> {
        match self.host()? {
            Cow::Borrowed(elements) => Ok(elements),
            Cow::Owned(_) => Err(bad_shape("reading", format!("the elements of {self:?} do not lie one behind the other"))),
        }
    }

    /// The memory of a tensor on the CPU to write, from its first element on; it must lie without gaps. Shared memory is copied first.
    pub(crate) fn host_mut<T: Element>(&mut self) -> Result<&mut [T]> {
        if T::DTYPE != self.dtype {
            return Err(Error::Type { op: "writing", what: "the tensor", found: self.dtype, expected: T::DTYPE.name() });
        }
        if Arc::get_mut(&mut self.storage).is_none() || !self.layout.is_contiguous() {
            *self = Tensor::from_bytes(&self.host_bytes()?, self.dtype, self.shape(), &Device::Cpu)?;
        }
        let (start, len) = if self.is_empty() { (0, 0) } else { (self.layout.offset(), self.len()) };
        match Arc::get_mut(&mut self.storage) {
            Some(Storage::Cpu(memory)) => Ok(&mut bytemuck::cast_slice_mut(memory)[start..start + len]),
            _ => Err(Error::Device { op: "writing", what: "the tensor", found: self.device.name().to_owned(), expected: "cpu".to_owned() }),
        }
    }

    /// The memory of a tensor on a GPU that lies without gaps.
    pub(crate) fn gpu_memory(&self) -> Result<Slice<'_, u8>> {
        match &*self.storage {
            Storage::Gpu(memory) => {
                let start = if self.is_empty() { 0 } else { self.layout.offset() * self.dtype.size() };
                Ok(memory.slice(start..start + self.len() * self.dtype.size())?)
            }
            Storage::Cpu(_) => Err(self.not_on_a_gpu()),
        }
    }

    /// A tensor of a GPU to read.
    pub fn view(&self) -> Result<View<'_>> {
        match &*self.storage {
            Storage::Gpu(memory) => Ok(View::of_bytes(memory, self.dtype, self.layout)?),
            Storage::Cpu(_) => Err(self.not_on_a_gpu()),
        }
    }

    /// A tensor of a GPU to write. Shared memory is copied first.
    pub fn view_mut(&mut self) -> Result<ViewMut<'_>> {
        self.view_mut_of(self.layout)
    }

    /// Some of the elements of a tensor of a GPU, to write: a layout of the same memory.
    pub(crate) fn view_mut_of(&mut self, layout: Layout) -> Result<ViewMut<'_>> {
        if Arc::get_mut(&mut self.storage).is_none()
            && let (Device::Gpu(gpu), Storage::Gpu(memory)) = (&self.device, &*self.storage)
        {
            // All of the memory, so that every layout of it still holds.
            let mut copy = gpu.alloc(memory.len())?;
            gpu.stream.copy(memory, &mut copy)?;
            self.storage = Arc::new(Storage::Gpu(copy));
        }
        let error = self.not_on_a_gpu();
        match Arc::get_mut(&mut self.storage) {
            Some(Storage::Gpu(memory)) => Ok(ViewMut::of_bytes(memory, self.dtype, layout)?),
            _ => Err(error),
        }
    }

    fn not_on_a_gpu(&self) -> Error {
        Error::Device { op: "a view", what: "the tensor", found: self.device.name().to_owned(), expected: "a GPU".to_owned() }
    }
}

fn as_bytes<T: Pod>(elements: Cow<'_, [T]>) -> Cow<'_, [u8]> {
    match elements {
        Cow::Borrowed(elements) => Cow::Borrowed(bytemuck::cast_slice(elements)),
        Cow::Owned(elements) => Cow::Owned(bytemuck::cast_slice(&elements).to_vec()),
    }
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{:?} on {}", self.dtype, self.shape(), self.device)
    }
}
