//! Reductions.

use warpwave_kernels::Reduce;

use super::values::Values;
use crate::backend::{Operand, OperandMut};
use crate::error::{Result, shape};

/// Reduces `x` along `dims`, which the result does not have. Floats are summed in `f64`.
pub(super) fn reduce(op: Reduce, x: &Operand<'_>, dims: &[usize], out: &mut OperandMut<'_>) -> Result<()> {
    let sizes = x.layout.shape();
    let (reduced, kept): (Vec<usize>, Vec<usize>) = (0..sizes.len()).partition(|d| dims.contains(d));
    let order: Vec<usize> = kept.iter().chain(&reduced).copied().collect();
    let rows = x.with_layout(permuted(x, &order)?);
    let product = |dims: &[usize]| dims.iter().map(|d| sizes[*d]).product::<usize>();
    let (count, len) = (product(&kept), product(&reduced));
    let extreme = matches!(op, Reduce::ArgMin | Reduce::ArgMax | Reduce::Min | Reduce::Max);
    if len == 0 && count > 0 && extreme {
        return Err(shape(op.name(), format!("cannot reduce {sizes:?} along {dims:?}: a reduced dimension has size 0")));
    }
    let values = match Values::of(&rows)? {
        Values::F32(x) => reduce_floats(&x.into_iter().map(f64::from).collect::<Vec<_>>(), count, len, op, out.dtype.is_integer()),
        Values::F64(x) => reduce_floats(&x, count, len, op, out.dtype.is_integer()),
        Values::I64(x) => Values::I64(each_row(&x, count, len, |row| reduce_ints(row, op))),
    };
    values.store(out)
}

fn permuted(x: &Operand<'_>, order: &[usize]) -> Result<warpwave_kernels::Layout> {
    let [sizes, strides] = [x.layout.shape(), x.layout.strides()].map(|all| order.iter().map(|d| all[*d]).collect::<Vec<_>>());
    Ok(warpwave_kernels::Layout::new(&sizes, &strides, x.layout.offset())?)
}

fn each_row<T, U>(x: &[T], count: usize, len: usize, f: impl Fn(&[T]) -> U) -> Vec<U> {
    (0..count).map(|i| f(&x[i * len..(i + 1) * len])).collect()
}

fn reduce_floats(x: &[f64], count: usize, len: usize, op: Reduce, integer: bool) -> Values {
    if integer {
        return Values::I64(each_row(x, count, len, |row| match op {
            Reduce::ArgMin => first(row, |x, best| x < best),
            Reduce::ArgMax => first(row, |x, best| x > best),
            Reduce::Any => row.iter().any(|x| *x != 0.0).into(),
            _ => row.iter().all(|x| *x != 0.0).into(),
        }));
    }
    Values::F64(each_row(x, count, len, |row| {
        let n = row.len() as f64;
        let sum = || row.iter().sum::<f64>();
        match op {
            Reduce::Sum => sum(),
            Reduce::Prod => row.iter().product(),
            Reduce::Min => row[first(row, |x, best| x < best) as usize],
            Reduce::Max => row[first(row, |x, best| x > best) as usize],
            Reduce::Mean => sum() / n,
            Reduce::Var(correction) => {
                let mean = sum() / n;
                row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / (n - correction).max(0.0)
            }
            _ => f64::NAN,
        }
    }))
}

/// The index of the first best element; NaN is best of all.
fn first(row: &[f64], better: impl Fn(f64, f64) -> bool) -> i64 {
    let mut best = 0;
    for (i, x) in row.iter().enumerate() {
        if row[best].is_nan() {
            break;
        }
        if x.is_nan() || better(*x, row[best]) {
            best = i;
        }
    }
    best as i64
}

fn reduce_ints(row: &[i64], op: Reduce) -> i64 {
    let index = |value: Option<&i64>| value.and_then(|value| row.iter().position(|x| x == value)).unwrap_or(0) as i64;
    match op {
        Reduce::Sum => row.iter().fold(0, |a: i64, b| a.wrapping_add(*b)),
        Reduce::Prod => row.iter().fold(1, |a: i64, b| a.wrapping_mul(*b)),
        Reduce::Min => row.iter().copied().min().unwrap_or(0),
        Reduce::Max => row.iter().copied().max().unwrap_or(0),
        Reduce::ArgMin => index(row.iter().min()),
        Reduce::ArgMax => index(row.iter().max()),
        Reduce::Any => row.iter().any(|x| *x != 0).into(),
        Reduce::All => row.iter().all(|x| *x != 0).into(),
        _ => 0,
    }
}
