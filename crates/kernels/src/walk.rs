//! Ways over rows: which dimensions are walked, by the strides of each operand.

use bytemuck::{Pod, Zeroable};

use crate::layout::MOST_DIMS;

/// Operands that a walk has at most.
pub(crate) const OPERANDS: usize = 3;

/// Bytes that a thread reads or writes at once.
pub(crate) const PACK: usize = 16;

/// A dimension, with a stride in each operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dim {
    pub size: usize,
    pub strides: [usize; OPERANDS],
}

/// As the struct of the kernels: the innermost dimension first.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Walk {
    pub n: u64,
    rank: u32,
    padding: u32,
    shape: [u64; MOST_DIMS],
    strides: [[u64; MOST_DIMS]; OPERANDS],
}

impl Walk {
    /// Over these dimensions, the innermost first.
    pub fn over<'a>(dims: impl IntoIterator<Item = &'a Dim>) -> Walk {
        let mut walk = Walk { n: 1, ..Walk::zeroed() };
        for (d, dim) in dims.into_iter().enumerate() {
            walk.n *= dim.size as u64;
            walk.rank += 1;
            walk.shape[d] = dim.size as u64;
            (0..OPERANDS).for_each(|k| walk.strides[k][d] = dim.strides[k] as u64);
        }
        walk
    }
}

/// The dimensions without those of one element, and with those made one that every operand walks in one step. They come innermost
/// first; where their order is free they are sorted by the first operand's strides, what it repeats last.
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

/// Whether packs of so many elements fit everywhere: the first dimension of these consists of them, and an operand's address and its
/// other strides are multiples.
pub(crate) fn packs_fit<'a>(operand: usize, address: u64, size: usize, width: usize, others: impl IntoIterator<Item = &'a Dim>) -> bool {
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
        let walk = Walk::over(&[dim(12, 1, 1), dim(2, 12, 13)]);
        assert_eq!((walk.n, walk.rank, walk.strides[1][..2].to_vec()), (24, 2, vec![1, 13]));
    }
}
