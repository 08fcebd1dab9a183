//! Device memory with an element type and a layout.

use warpwave_gpu::{Device, Slice, SliceMut};

use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::layout::Layout;

/// Elements to read.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    data: Slice<'a, u8>,
    dtype: DType,
    layout: Layout,
}

/// Elements to write.
#[derive(Debug)]
pub struct ViewMut<'a> {
    data: SliceMut<'a, u8>,
    dtype: DType,
    layout: Layout,
}

impl<'a> View<'a> {
    /// Creates a view of a buffer or a slice of it. Fails if the layout exceeds the memory.
    pub fn new<T: Element>(data: impl Into<Slice<'a, T>>, layout: Layout) -> Result<View<'a>> {
        View::of_bytes(data.into().into_bytes(), T::DTYPE, layout)
    }

    /// Creates a view of bytes as elements of `dtype`.
    pub fn of_bytes(data: impl Into<Slice<'a, u8>>, dtype: DType, layout: Layout) -> Result<View<'a>> {
        let data = data.into();
        check(data, dtype, &layout)?;
        Ok(View { data, dtype, layout })
    }

    /// Whether the memory around it, up to multiples of `granule` bytes, belongs to the same allocation.
    pub(crate) fn is_padded_to(&self, granule: u64) -> bool {
        self.data.is_padded_to(granule)
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The layout.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The device.
    pub fn device(&self) -> &Device {
        self.data.device()
    }

    /// The same memory with another layout.
    pub(crate) fn with_layout(&self, layout: Layout) -> Result<View<'a>> {
        View::of_bytes(self.data, self.dtype, layout)
    }

    /// The memory from the first element on.
    pub(crate) fn start(&self) -> Slice<'a, u8> {
        let start = if self.layout.is_empty() { 0 } else { self.layout.offset() * self.dtype.size() };
        self.data.slice(start..).unwrap_or_else(|error| unreachable!("invalid view: {error}"))
    }

    /// The address of the first element.
    pub(crate) fn address(&self) -> u64 {
        // The offset of an empty layout was not checked.
        let offset = if self.layout.is_empty() { 0 } else { self.layout.offset() * self.dtype.size() };
        self.data.device_ptr() + offset as u64
    }

    /// The address range from the first element to the last.
    fn range(&self) -> std::ops::Range<u64> {
        self.address()..self.data.device_ptr() + ((self.layout.last() + 1) * self.dtype.size()) as u64
    }

    /// Whether the address ranges overlap.
    pub(crate) fn overlaps(&self, other: &View<'_>) -> bool {
        // The offset of an empty layout was not checked.
        if self.layout.is_empty() || other.layout.is_empty() {
            return false;
        }
        let (a, b) = (self.range(), other.range());
        a.start < b.end && b.start < a.end
    }

    /// Whether writing one may change what is read from the other, except element by element in place.
    pub(crate) fn aliases(&self, written: &View<'_>) -> bool {
        if !self.overlaps(written) {
            return false;
        }
        let at_zero = |view: &View<'_>| Layout::new(view.layout.shape(), view.layout.strides(), 0).ok();
        let in_place = self.address() == written.address()
            && self.dtype.size() == written.dtype.size()
            && at_zero(self).zip(at_zero(written)).is_some_and(|(x, y)| x.same_offsets(&y));
        !in_place
    }
}

impl<'a> ViewMut<'a> {
    /// Creates a view of a buffer or a slice of it. Fails if the layout exceeds the memory or repeats elements.
    pub fn new<T: Element>(data: impl Into<SliceMut<'a, T>>, layout: Layout) -> Result<ViewMut<'a>> {
        ViewMut::of_bytes(data.into().into_bytes(), T::DTYPE, layout)
    }

    /// Creates a view of bytes as elements of `dtype`.
    pub fn of_bytes(data: impl Into<SliceMut<'a, u8>>, dtype: DType, layout: Layout) -> Result<ViewMut<'a>> {
        let data = data.into();
        check(data.as_view(), dtype, &layout)?;
        if !layout.is_injective() {
            let (shape, strides) = (layout.shape().to_vec(), layout.strides().to_vec());
            let reason = "a writable view must not contain an element more than once (stride 0 or overlapping strides)".to_owned();
            return Err(Error::BadLayout { shape, strides, reason });
        }
        Ok(ViewMut { data, dtype, layout })
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The layout.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The device.
    pub fn device(&self) -> &Device {
        self.data.device()
    }

    /// A read-only view of the same elements.
    pub fn as_view(&self) -> View<'_> {
        View { data: self.data.as_view(), dtype: self.dtype, layout: self.layout }
    }
}

fn check(data: Slice<'_, u8>, dtype: DType, layout: &Layout) -> Result<()> {
    if !DType::COMPUTE.contains(&dtype) {
        let (op, expected) = ("view".to_owned(), format!("one of {}", DType::names(&DType::COMPUTE)));
        return Err(Error::WrongType { op, what: "the data", found: dtype, expected });
    }
    if layout.is_empty() {
        return Ok(());
    }
    let (address, len) = (data.device_ptr(), data.len() / dtype.size());
    if !address.is_multiple_of(dtype.size() as u64) {
        return Err(Error::Misaligned { address, dtype });
    }
    if layout.last() >= len {
        return Err(Error::OutOfBounds { last: layout.last(), len, dtype });
    }
    Ok(())
}
