//! Indexing. Out-of-range indices read 0 and write nothing.

use bytemuck::Pod;
use warpwave_kernels::Layout;

use super::values::{self, Values, ints};
use crate::backend::{Operand, OperandMut};
use crate::error::Result;

/// Calls `f` with each index of a shape in row-major order, and its number.
pub(super) fn walk(shape: &[usize], mut f: impl FnMut(usize, &[usize])) {
    if shape.contains(&0) {
        return;
    }
    let mut index = vec![0; shape.len()];
    for number in 0.. {
        f(number, &index);
        let Some(d) = (0..shape.len()).rev().find(|d| index[*d] + 1 < shape[*d]) else { return };
        index[d] += 1;
        index[d + 1..].fill(0);
    }
}

/// The offset of an element whose index along `dim` is replaced, unless that is out of range.
fn position(layout: &Layout, index: &[usize], dim: usize, at: i64) -> Option<usize> {
    let at = usize::try_from(at).ok().filter(|at| *at < layout.shape()[dim])?;
    let offsets = index.iter().zip(layout.strides()).enumerate();
    Some(layout.offset() + offsets.map(|(d, (i, stride))| if d == dim { at * stride } else { i * stride }).sum::<usize>())
}

pub(super) fn gather(x: &Operand<'_>, indices: &Operand<'_>, dim: usize, out: &mut OperandMut<'_>) -> Result<()> {
    fn of<T: Pod>(x: &Operand<'_>, indices: &Operand<'_>, dim: usize, out: &mut OperandMut<'_>) -> Result<()> {
        let (memory, at) = (values::memory::<T>(x.storage)?, ints(indices)?);
        values::write::<T>(out, |out| {
            walk(indices.layout.shape(), |i, index| out[i] = position(&x.layout, index, dim, at[i]).map_or(T::zeroed(), |at| memory[at]));
            Ok(())
        })
    }
    match x.dtype.size() {
        1 => of::<u8>(x, indices, dim, out),
        2 => of::<u16>(x, indices, dim, out),
        4 => of::<u32>(x, indices, dim, out),
        _ => of::<u64>(x, indices, dim, out),
    }
}

pub(super) fn index_select(x: &Operand<'_>, indices: &Operand<'_>, dim: usize, out: &mut OperandMut<'_>) -> Result<()> {
    let (bytes, at, shape) = (values::bytes(x)?, ints(indices)?, x.layout.shape());
    let row = shape[dim + 1..].iter().product::<usize>() * x.dtype.size();
    let selected = select_rows(&bytes, row, shape[dim], shape[..dim].iter().product(), &at);
    values::write_bytes(out, &selected)
}

/// Rows of `row` bytes, of each of `outer` groups of `rows` rows.
pub(super) fn select_rows(bytes: &[u8], row: usize, rows: usize, outer: usize, at: &[i64]) -> Vec<u8> {
    let mut out = vec![0; outer * at.len() * row];
    if row > 0 {
        for (i, out) in out.chunks_exact_mut(row).enumerate() {
            let (group, at) = (i / at.len(), at[i % at.len()]);
            if let Some(at) = usize::try_from(at).ok().filter(|at| *at < rows) {
                out.copy_from_slice(&bytes[(group * rows + at) * row..][..row]);
            }
        }
    }
    out
}

/// Of equal indices the last one's element stays.
pub(super) fn scatter(out: &mut OperandMut<'_>, indices: &Operand<'_>, x: &Operand<'_>, dim: usize) -> Result<()> {
    fn of<T: Pod>(out: &mut OperandMut<'_>, indices: &Operand<'_>, x: &Operand<'_>, dim: usize) -> Result<()> {
        let (x, at) = (values::read::<T>(x)?, ints(indices)?);
        let dense = Layout::contiguous(out.layout.shape())?;
        values::update::<T>(out, |out| {
            walk(indices.layout.shape(), |i, index| {
                if let Some(at) = position(&dense, index, dim, at[i]) {
                    out[at] = x[i];
                }
            });
            Ok(())
        })
    }
    match x.dtype.size() {
        1 => of::<u8>(out, indices, x, dim),
        2 => of::<u16>(out, indices, x, dim),
        4 => of::<u32>(out, indices, x, dim),
        _ => of::<u64>(out, indices, x, dim),
    }
}

/// Adds elements in order, and rounds once. `along` says that there is one index for each position of `dim`.
pub(super) fn scatter_add(out: &mut OperandMut<'_>, indices: &Operand<'_>, x: &Operand<'_>, dim: usize, along: bool) -> Result<()> {
    let (at, dense) = (ints(indices)?, Layout::contiguous(out.layout.shape())?);
    let pairs = |add: &mut dyn FnMut(usize, usize)| {
        walk(x.layout.shape(), |i, index| {
            if let Some(at) = position(&dense, index, dim, at[if along { index[dim] } else { i }]) {
                add(at, i);
            }
        });
    };
    let sum = match (Values::of(&out.as_operand())?, Values::of(x)?) {
        (Values::F32(mut sum), Values::F32(x)) => {
            pairs(&mut |at, i| sum[at] += x[i]);
            Values::F32(sum)
        }
        (Values::F64(mut sum), Values::F64(x)) => {
            pairs(&mut |at, i| sum[at] += x[i]);
            Values::F64(sum)
        }
        (Values::I64(mut sum), Values::I64(x)) => {
            pairs(&mut |at, i| sum[at] = sum[at].wrapping_add(x[i]));
            Values::I64(sum)
        }
        (unchanged, _) => unchanged,
    };
    sum.store(out)
}
