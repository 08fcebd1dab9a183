//! Dimensions by number, counted from the end if negative.

use crate::error::{Result, shape};

/// A dimension of a tensor: `0` is the first, `-1` the last, as in PyTorch and NumPy.
pub trait Dim: Copy + std::fmt::Display {
    /// Returns the index of the dimension in a tensor of `rank` dimensions.
    fn index(self, rank: usize) -> Option<usize>;
}

impl Dim for usize {
    fn index(self, rank: usize) -> Option<usize> {
        (self < rank).then_some(self)
    }
}

macro_rules! signed {
    ($($ty:ty),*) => { $(
        impl Dim for $ty {
            fn index(self, rank: usize) -> Option<usize> {
                let from_start = if self < 0 { rank.checked_sub(usize::try_from(self.unsigned_abs()).ok()?)? } else { usize::try_from(self).ok()? };
                from_start.index(rank)
            }
        }
    )* };
}
signed!(i32, i64, isize);

/// The index of a dimension of a shape.
pub(crate) fn index(op: &'static str, dim: impl Dim, sizes: &[usize]) -> Result<usize> {
    dim.index(sizes.len()).ok_or_else(|| shape(op, format!("dimension {dim} is out of range for shape {sizes:?}")))
}

/// The indices of several dimensions of a shape, each once.
pub(crate) fn indices(op: &'static str, dims: &[impl Dim], sizes: &[usize]) -> Result<Vec<usize>> {
    let all = dims.iter().map(|dim| index(op, *dim, sizes)).collect::<Result<Vec<_>>>()?;
    match (1..all.len()).find(|i| all[..*i].contains(&all[*i])) {
        Some(i) => Err(shape(op, format!("dimension {} is given twice", dims[i]))),
        None => Ok(all),
    }
}
