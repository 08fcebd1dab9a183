//! Sorting, distinct elements, and counting.

use std::sync::{Mutex, PoisonError};

use bytemuck::Pod;
use warpwave_kernels::DType;

use super::pool::{parallel, threads};
use super::values::{self, Values};
use crate::backend::{Bins, Operand, OperandMut};
use crate::error::Result;

/// Integers in the order of the elements: NaN is the largest, and both zeros are equal.
fn keys(x: &Operand<'_>) -> Result<Vec<u64>> {
    const SIGN: u64 = 1 << 63;
    let float = |x: f64| match x.to_bits() {
        _ if x.is_nan() => u64::MAX,
        SIGN => SIGN,
        bits if bits & SIGN != 0 => !bits,
        bits => bits | SIGN,
    };
    Ok(match Values::of(x)? {
        Values::F32(x) => x.into_iter().map(|x| float(x.into())).collect(),
        Values::F64(x) => x.into_iter().map(float).collect(),
        Values::I64(x) => x.into_iter().map(|x| x as u64 ^ SIGN).collect(),
    })
}

/// The positions of the first `k` keys in order; of equal ones the first comes first.
fn sorted(keys: &[u64], k: usize, descending: bool) -> Vec<u32> {
    let flip = if descending { u64::MAX } else { 0 };
    let mut pairs: Vec<(u64, u32)> = keys.iter().zip(0..).map(|(key, at)| (key ^ flip, at)).collect();
    if 0 < k && k < pairs.len() {
        pairs.select_nth_unstable(k - 1);
    }
    pairs.truncate(k);
    pairs.sort_unstable();
    pairs.into_iter().map(|(_, at)| at).collect()
}

/// Sorts the first elements of rows along the last dimension, as many as `indices` has.
pub(super) fn order(x: &Operand<'_>, descending: bool, values: Option<&mut OperandMut<'_>>, indices: &mut OperandMut<'_>) -> Result<()> {
    let last = |shape: &[usize]| shape.last().copied().unwrap_or(1);
    let (n, k) = (last(x.layout.shape()), last(indices.layout.shape()));
    if indices.layout.is_empty() {
        return Ok(());
    }
    let keys = keys(x)?;
    let rows = keys.len() / n;
    // A few tasks per thread, each of adjacent rows.
    let each = rows.div_ceil(4 * threads());
    let parts: Vec<Mutex<Vec<u32>>> = (0..rows.div_ceil(each)).map(|_| Mutex::default()).collect();
    parallel(parts.len(), &|part| {
        let rows = keys.chunks_exact(n).skip(part * each).take(each);
        *parts[part].lock().unwrap_or_else(PoisonError::into_inner) = rows.flat_map(|row| sorted(row, k, descending)).collect();
    });
    let order: Vec<u32> = parts.into_iter().flat_map(|part| part.into_inner().unwrap_or_else(PoisonError::into_inner)).collect();
    if let Some(out) = values {
        match x.dtype.size() {
            1 => select::<u8>(x, &order, [n, k], out)?,
            2 => select::<u16>(x, &order, [n, k], out)?,
            4 => select::<u32>(x, &order, [n, k], out)?,
            _ => select::<u64>(x, &order, [n, k], out)?,
        }
    }
    values::write::<u32>(indices, |out| {
        out.copy_from_slice(&order);
        Ok(())
    })
}

/// Writes `k` elements of each row of `n` by their positions.
fn select<T: Pod>(x: &Operand<'_>, order: &[u32], [n, k]: [usize; 2], out: &mut OperandMut<'_>) -> Result<()> {
    let x = values::read::<T>(x)?;
    values::write::<T>(out, |out| {
        out.iter_mut().zip(order).enumerate().for_each(|(i, (out, at))| *out = x[i / k * n + *at as usize]);
        Ok(())
    })
}

/// Writes the distinct elements of a row, the position of each element among them and their counts; returns their number.
pub(super) fn unique(x: &Operand<'_>, out: &mut OperandMut<'_>, more: Option<(&mut OperandMut<'_>, &mut OperandMut<'_>)>) -> Result<usize> {
    let keys = keys(x)?;
    let order = sorted(&keys, keys.len(), false);
    let runs: Vec<&[u32]> = order.chunk_by(|a, b| keys[*a as usize] == keys[*b as usize]).collect();
    let firsts: Vec<u32> = runs.iter().map(|run| run[0]).collect();
    let sizes = [keys.len(), keys.len().max(1)];
    match x.dtype.size() {
        1 => select::<u8>(x, &firsts, sizes, out)?,
        2 => select::<u16>(x, &firsts, sizes, out)?,
        4 => select::<u32>(x, &firsts, sizes, out)?,
        _ => select::<u64>(x, &firsts, sizes, out)?,
    }
    if let Some((inverse, counts)) = more {
        values::write::<u32>(inverse, |out| {
            for (run, number) in runs.iter().zip(0..) {
                run.iter().for_each(|at| out[*at as usize] = number);
            }
            Ok(())
        })?;
        values::write::<u32>(counts, |out| {
            out.iter_mut().zip(&runs).for_each(|(out, run)| *out = run.len() as u32);
            Ok(())
        })?;
    }
    Ok(runs.len())
}

/// Counts elements by bins, in the type that kernels use: `f32` for small integers and floats other than `f64`.
pub(super) fn histogram(x: &Operand<'_>, kind: Bins, out: &mut OperandMut<'_>) -> Result<()> {
    let bins = out.layout.len();
    let elements = Values::of(x)?;
    macro_rules! bins_of {
        ($ty:ty, $elements:expr, $low:expr, $high:expr) => {{
            let (low, high, scale) = ($low as $ty, $high as $ty, (bins as f64 / ($high - $low)) as $ty);
            let bin = move |x: $ty| (low <= x && x <= high).then(|| (((x - low) * scale) as usize).min(bins.saturating_sub(1)));
            $elements.into_iter().filter_map(|x| bin(x as $ty)).collect()
        }};
    }
    let found: Vec<usize> = match (kind, elements) {
        (Bins::Integers, Values::I64(x)) => x.into_iter().filter_map(|x| usize::try_from(x).ok()).collect(),
        (Bins::Integers, _) => Vec::new(),
        (Bins::Between(low, high), Values::F64(x)) => bins_of!(f64, x, low, high),
        (Bins::Between(low, high), Values::I64(values)) if matches!(x.dtype, DType::U8 | DType::I16) => bins_of!(f32, values, low, high),
        (Bins::Between(low, high), Values::I64(x)) => bins_of!(f64, x, low, high),
        (Bins::Between(low, high), Values::F32(x)) => bins_of!(f32, x, low, high),
    };
    values::write::<i64>(out, |out| {
        out.fill(0);
        for bin in found {
            if let Some(count) = out.get_mut(bin) {
                *count += 1;
            }
        }
        Ok(())
    })
}
