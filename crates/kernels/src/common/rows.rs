//! Row iteration: dimensions with a stride per operand.

use bytemuck::{Pod, Zeroable};

use crate::layout::MAX_DIMS;

/// The most operands.
pub(crate) const OPERANDS: usize = 3;

/// Bytes of a vectorized access.
pub(crate) const PACK: usize = 16;

/// A dimension, with a stride in each operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dim {
    pub size: usize,
    pub strides: [usize; OPERANDS],
}

/// Dimensions as the kernels take them, innermost first; mirrors `RowDims` in `row_reduce.cuh`.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct RowDims {
    pub n: u64,
    rank: u32,
    padding: u32,
    shape: [u64; MAX_DIMS],
    strides: [[u64; MAX_DIMS]; OPERANDS],
}

impl RowDims {
    /// Creates them from dimensions, innermost first.
    pub fn over<'a>(dims: impl IntoIterator<Item = &'a Dim>) -> RowDims {
        let mut row_dims = RowDims { n: 1, ..RowDims::zeroed() };
        for (d, dim) in dims.into_iter().enumerate() {
            row_dims.n *= dim.size as u64;
            row_dims.rank += 1;
            row_dims.shape[d] = dim.size as u64;
            (0..OPERANDS).for_each(|k| row_dims.strides[k][d] = dim.strides[k] as u64);
        }
        row_dims
    }
}

/// Merges dimensions that are contiguous in every operand and drops those of size 1.
///
/// Dimensions come innermost first; if their order is `free`, they are sorted by the first operand's stride, broadcast ones last.
pub(crate) fn merged(dims: impl IntoIterator<Item = Dim>, free: bool) -> Vec<Dim> {
    let mut dims: Vec<Dim> = dims.into_iter().filter(|dim| dim.size != 1).collect();
    if free {
        dims.sort_by_key(|dim| dim.strides[0].wrapping_sub(1));
    }
    let mut result: Vec<Dim> = Vec::new();
    for dim in dims {
        match result.last_mut() {
            Some(inner) if (0..OPERANDS).all(|k| dim.strides[k] == inner.strides[k] * inner.size) => inner.size *= dim.size,
            _ => result.push(dim),
        }
    }
    result
}

/// The number of elements.
pub(crate) fn count(dims: &[Dim]) -> usize {
    dims.iter().map(|dim| dim.size).product()
}

/// Whether an operand's address and its strides in `others` are multiples of `width` elements.
pub(crate) fn packs_are_aligned<'a>(
    operand: usize,
    address: u64,
    size: usize,
    width: usize,
    others: impl IntoIterator<Item = &'a Dim>,
) -> bool {
    address.is_multiple_of((width * size) as u64) && others.into_iter().all(|dim| dim.strides[operand].is_multiple_of(width))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_are_merged_where_all_operands_agree() {
        let dim = |size, x, y| Dim { size, strides: [x, y, 0] };
        assert_eq!(merged([dim(4, 1, 1), dim(3, 4, 4), dim(1, 99, 7), dim(2, 12, 13)], false), [dim(12, 1, 1), dim(2, 12, 13)]);
        assert_eq!(merged([dim(3, 4, 0), dim(4, 1, 0)], true), [dim(12, 1, 0)]);
        assert_eq!(merged([dim(3, 4, 0), dim(4, 1, 0)], false), [dim(3, 4, 0), dim(4, 1, 0)]);
        assert_eq!(merged([dim(5, 0, 0), dim(4, 7, 0)], true), [dim(4, 7, 0), dim(5, 0, 0)]);
        assert_eq!(merged([dim(1, 3, 3)], true), []);
        let row_dims = RowDims::over(&[dim(12, 1, 1), dim(2, 12, 13)]);
        assert_eq!((row_dims.n, row_dims.rank, row_dims.strides[1][..2].to_vec()), (24, 2, vec![1, 13]));
    }
}
