//! Tensor layouts: shape, strides and offset.

use crate::error::{Error, Result};

/// The most dimensions of a layout.
pub const MAX_DIMS: usize = 6;

/// Shape, strides and offset, in elements. A stride of 0 broadcasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    rank: usize,
    shape: [usize; MAX_DIMS],
    strides: [usize; MAX_DIMS],
    offset: usize,
}

impl Layout {
    /// Creates a layout with arbitrary strides.
    pub fn new(shape: &[usize], strides: &[usize], offset: usize) -> Result<Layout> {
        let bad = |reason: String| Error::BadLayout { shape: shape.to_vec(), strides: strides.to_vec(), reason };
        if shape.len() != strides.len() {
            return Err(bad("number of strides must equal the number of dimensions".to_owned()));
        }
        if shape.len() > MAX_DIMS {
            return Err(bad(format!("at most {MAX_DIMS} dimensions are supported")));
        }
        let mut layout = Layout { rank: shape.len(), shape: [1; MAX_DIMS], strides: [0; MAX_DIMS], offset };
        layout.shape[..shape.len()].copy_from_slice(shape);
        layout.strides[..shape.len()].copy_from_slice(strides);
        // Sizes of 0 count as 1 here: the product of the others must not overflow either.
        let product = shape.iter().try_fold(1usize, |n, size| n.checked_mul((*size).max(1)));
        let reach = layout.reach();
        match product.zip(reach).map(|(n, last)| n.max(last)).filter(|most| isize::try_from(*most).is_ok()) {
            Some(_) => Ok(layout),
            None => Err(bad(format!("the layout with offset {offset} exceeds the address space"))),
        }
    }

    /// Creates a contiguous row-major layout.
    pub fn contiguous(shape: &[usize]) -> Result<Layout> {
        let mut strides = vec![1usize; shape.len()];
        for d in (1..shape.len()).rev() {
            strides[d - 1] = strides[d].saturating_mul(shape[d].max(1));
        }
        Layout::new(shape, &strides, 0)
    }

    /// Creates a layout of matrix rows that are `stride` elements apart, as for a 2-D copy.
    pub fn rows(rows: usize, columns: usize, stride: usize, offset: usize) -> Result<Layout> {
        Layout::new(&[rows, columns], &[stride, 1], offset)
    }

    /// The sizes of the dimensions.
    pub fn shape(&self) -> &[usize] {
        &self.shape[..self.rank]
    }

    /// The strides, in elements.
    pub fn strides(&self) -> &[usize] {
        &self.strides[..self.rank]
    }

    /// The offset of the first element.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.shape().iter().product()
    }

    /// Whether it has 0 elements.
    pub fn is_empty(&self) -> bool {
        self.shape().contains(&0)
    }

    /// Whether the elements are contiguous in row-major order.
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        self.is_empty()
            || self.shape().iter().zip(self.strides()).rev().all(|(size, stride)| {
                let fits = *size == 1 || *stride == expected;
                expected *= size;
                fits
            })
    }

    /// Swaps two dimensions.
    pub fn transpose(mut self, a: usize, b: usize) -> Result<Layout> {
        if a.max(b) >= self.rank {
            return Err(self.bad(format!("transpose: dimension {a} or {b} is out of range for {} dimensions", self.rank)));
        }
        self.shape.swap(a, b);
        self.strides.swap(a, b);
        Ok(self)
    }

    /// Broadcasts to a larger shape: dimensions of size 1, and missing leading ones, are repeated.
    pub fn broadcast_to(&self, shape: &[usize]) -> Result<Layout> {
        let Some(missing) = shape.len().checked_sub(self.rank) else {
            return Err(self.bad(format!("cannot broadcast to {shape:?}: the target has fewer dimensions")));
        };
        let mut strides = vec![0; shape.len()];
        for (d, size) in self.shape().iter().enumerate() {
            if *size == shape[missing + d] {
                strides[missing + d] = self.strides[d];
            } else if *size != 1 {
                return Err(self.bad(format!("cannot broadcast to {shape:?}")));
            }
        }
        Layout::new(shape, &strides, self.offset)
    }

    /// Restricts a dimension to `len` positions from `start`.
    pub fn narrow(mut self, d: usize, start: usize, len: usize) -> Result<Layout> {
        let within = d < self.rank && start.checked_add(len).is_some_and(|end| end <= self.shape[d]);
        if !within {
            return Err(self.bad(format!("narrow: positions {start}..{start} + {len} of dimension {d} are out of range")));
        }
        self.shape[d] = len;
        // An empty layout reaches no element: its offset must not exceed the memory.
        self.offset += if self.is_empty() { 0 } else { start * self.strides[d] };
        Ok(self)
    }

    /// The offset of the last element.
    pub(crate) fn last(&self) -> usize {
        self.reach().unwrap_or(usize::MAX)
    }

    fn reach(&self) -> Option<usize> {
        let dims = self.shape().iter().zip(self.strides());
        dims.filter(|(size, _)| **size > 0).try_fold(self.offset, |at, (size, stride)| at.checked_add((size - 1).checked_mul(*stride)?))
    }

    /// Whether no two indices share an offset. Conservative: some interleaved layouts are rejected.
    pub(crate) fn is_injective(&self) -> bool {
        let mut dims: Vec<(usize, usize)> = self.strides().iter().copied().zip(self.shape().iter().copied()).filter(|d| d.1 > 1).collect();
        dims.sort_unstable();
        let mut reached = 0;
        self.is_empty()
            || dims.into_iter().all(|(stride, size)| {
                let fits = stride > reached;
                reached += stride * (size - 1);
                fits
            })
    }

    /// Whether both map each index to the same offset.
    pub(crate) fn same_offsets(&self, other: &Layout) -> bool {
        let strides = self.shape().iter().zip(self.strides().iter().zip(other.strides()));
        self.shape() == other.shape() && self.offset == other.offset && strides.into_iter().all(|(size, (a, b))| *size <= 1 || a == b)
    }

    fn bad(&self, reason: String) -> Error {
        Error::BadLayout { shape: self.shape().to_vec(), strides: self.strides().to_vec(), reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contiguous_layouts_are_told_apart() {
        let layout = Layout::contiguous(&[2, 3, 4]).unwrap();
        assert_eq!((layout.strides(), layout.len(), layout.last()), (&[12, 4, 1][..], 24, 23));
        assert!(layout.is_contiguous() && layout.is_injective());
        assert!(!layout.transpose(0, 2).unwrap().is_contiguous());
        assert!(Layout::new(&[3, 1, 2], &[2, 99, 1], 5).unwrap().is_contiguous());
        assert!(Layout::contiguous(&[]).unwrap().is_contiguous());
        assert_eq!(Layout::contiguous(&[]).unwrap().len(), 1);
    }

    #[test]
    fn what_cannot_be_addressed_is_no_layout() {
        for (shape, strides, offset) in [
            (vec![usize::MAX, 2], vec![1, 1], 0),
            (vec![2, 2], vec![usize::MAX, usize::MAX], 0),
            (vec![2], vec![1], usize::MAX),
            (vec![0, usize::MAX, 2], vec![1, 1, 1], 0),
            (vec![1; 7], vec![1; 7], 0),
            (vec![2], vec![1, 1], 0),
        ] {
            assert!(matches!(Layout::new(&shape, &strides, offset), Err(Error::BadLayout { .. })), "{shape:?}");
        }
    }

    #[test]
    fn views_of_layouts() {
        let matrix = Layout::contiguous(&[4, 6]).unwrap();
        assert_eq!(matrix.narrow(1, 2, 3).unwrap(), Layout::rows(4, 3, 6, 2).unwrap());
        assert!(matrix.narrow(1, 4, 3).is_err() && matrix.narrow(2, 0, 1).is_err() && matrix.narrow(0, usize::MAX, 2).is_err());
        assert_eq!(matrix.narrow(0, 4, 0).unwrap().offset(), 0);
        let row = Layout::contiguous(&[6]).unwrap().broadcast_to(&[2, 4, 6]).unwrap();
        assert_eq!(row.strides(), [0, 0, 1]);
        assert!(!row.is_injective());
        assert!(matrix.broadcast_to(&[5, 6]).is_err() && matrix.broadcast_to(&[6]).is_err());
        assert!(matrix.transpose(0, 2).is_err());
    }
}
