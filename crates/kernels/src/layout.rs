//! Where the elements of a tensor lie in memory.

use crate::error::{Error, Result};

/// Dimensions that a layout has at most.
pub const MOST_DIMS: usize = 6;

/// Shape, strides and offset, all in elements. A stride of 0 repeats what is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    rank: usize,
    shape: [usize; MOST_DIMS],
    strides: [usize; MOST_DIMS],
    offset: usize,
}

impl Layout {
    /// Any layout: the last dimension need not lie densest.
    pub fn new(shape: &[usize], strides: &[usize], offset: usize) -> Result<Layout> {
        let bad = |reason: String| Error::BadLayout { shape: shape.to_vec(), strides: strides.to_vec(), reason };
        if shape.len() != strides.len() {
            return Err(bad("each dimension needs one stride".to_owned()));
        }
        if shape.len() > MOST_DIMS {
            return Err(bad(format!("there are at most {MOST_DIMS} dimensions")));
        }
        let mut layout = Layout { rank: shape.len(), shape: [1; MOST_DIMS], strides: [0; MOST_DIMS], offset };
        layout.shape[..shape.len()].copy_from_slice(shape);
        layout.strides[..shape.len()].copy_from_slice(strides);
        // Zero-size dimensions count as one here: the product of the others must not overflow either.
        let product = shape.iter().try_fold(1usize, |n, size| n.checked_mul((*size).max(1)));
        let reach = layout.reach();
        match product.zip(reach).map(|(n, last)| n.max(last)).filter(|most| isize::try_from(*most).is_ok()) {
            Some(_) => Ok(layout),
            None => Err(bad(format!("with offset {offset} it reaches beyond what can be addressed"))),
        }
    }

    /// Rows one behind the other, without gaps.
    pub fn contiguous(shape: &[usize]) -> Result<Layout> {
        let mut strides = vec![1usize; shape.len()];
        for d in (1..shape.len()).rev() {
            strides[d - 1] = strides[d].saturating_mul(shape[d].max(1));
        }
        Layout::new(shape, &strides, 0)
    }

    /// Rows of a matrix whose beginnings are `stride` elements apart: what a 2-D copy moves.
    pub fn rows(rows: usize, columns: usize, stride: usize, offset: usize) -> Result<Layout> {
        Layout::new(&[rows, columns], &[stride, 1], offset)
    }

    /// The sizes of the dimensions.
    pub fn shape(&self) -> &[usize] {
        &self.shape[..self.rank]
    }

    /// The steps between elements in each dimension.
    pub fn strides(&self) -> &[usize] {
        &self.strides[..self.rank]
    }

    /// The first element's place.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.shape().iter().product()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.shape().contains(&0)
    }

    /// Whether the elements lie one behind the other in their order.
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        self.is_empty()
            || self.shape().iter().zip(self.strides()).rev().all(|(size, stride)| {
                let fits = *size == 1 || *stride == expected;
                expected *= size;
                fits
            })
    }

    /// The same elements with two dimensions exchanged.
    pub fn transpose(mut self, a: usize, b: usize) -> Result<Layout> {
        if a.max(b) >= self.rank {
            return Err(self.bad(format!("it has no dimensions {a} and {b} to exchange")));
        }
        self.shape.swap(a, b);
        self.strides.swap(a, b);
        Ok(self)
    }

    /// Repeated to a larger shape: dimensions of one element, and those missing in front, are repeated.
    pub fn broadcast_to(&self, shape: &[usize]) -> Result<Layout> {
        let Some(missing) = shape.len().checked_sub(self.rank) else {
            return Err(self.bad(format!("{shape:?} has fewer dimensions")));
        };
        let mut strides = vec![0; shape.len()];
        for (d, size) in self.shape().iter().enumerate() {
            if *size == shape[missing + d] {
                strides[missing + d] = self.strides[d];
            } else if *size != 1 {
                return Err(self.bad(format!("it cannot be repeated to {shape:?}")));
            }
        }
        Layout::new(shape, &strides, self.offset)
    }

    /// Some places of a dimension.
    pub fn narrow(mut self, d: usize, start: usize, len: usize) -> Result<Layout> {
        let within = d < self.rank && start.checked_add(len).is_some_and(|end| end <= self.shape[d]);
        if !within {
            return Err(self.bad(format!("it has no places {start} to {start} + {len} in dimension {d}")));
        }
        self.shape[d] = len;
        // Of no elements nothing is reached: the offset must not lead beyond the memory.
        self.offset += if self.is_empty() { 0 } else { start * self.strides[d] };
        Ok(self)
    }

    /// The last element's place.
    pub(crate) fn last(&self) -> usize {
        self.reach().unwrap_or(usize::MAX)
    }

    fn reach(&self) -> Option<usize> {
        let dims = self.shape().iter().zip(self.strides());
        dims.filter(|(size, _)| **size > 0).try_fold(self.offset, |at, (size, stride)| at.checked_add((size - 1).checked_mul(*stride)?))
    }

    /// Whether no two indices can have the same place; some layouts that interleave in odd ways are taken for ones that could.
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

    /// Whether both give each index the same place.
    pub(crate) fn same_places(&self, other: &Layout) -> bool {
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
