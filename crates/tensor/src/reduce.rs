//! Reductions on the CPU.

use warpwave_kernels::{DType, Reduce};

use crate::error::{Error, Result, shape};
use crate::tensor::Tensor;
use crate::values::Values;

/// What becomes of the elements along some dimensions, which are gone in the result.
pub(crate) fn reduce(x: &Tensor, op: Reduce, axes: &[usize], dtype: DType) -> Result<Tensor> {
    let rank = x.shape().len();
    let (gone, kept): (Vec<usize>, Vec<usize>) = (0..rank).partition(|d| axes.contains(d));
    let order: Vec<usize> = kept.iter().chain(&gone).copied().collect();
    let rows = x.permute(&order)?;
    let to: Vec<usize> = kept.iter().map(|d| x.shape()[*d]).collect();
    let (count, inner) = (to.iter().product::<usize>(), gone.iter().map(|d| x.shape()[*d]).product::<usize>());
    let index = matches!(op, Reduce::ArgMin | Reduce::ArgMax);
    if inner == 0 && count > 0 && (index || matches!(op, Reduce::Min | Reduce::Max)) {
        return Err(shape(op.name(), format!("{:?} has no elements along {axes:?}", x.shape())));
    }
    let values = match Values::of(&rows)? {
        Values::F32(x) => {
            let wide: Vec<f64> = x.into_iter().map(f64::from).collect();
            floats(&wide, count, inner, op, dtype)
        }
        Values::F64(x) => floats(&x, count, inner, op, dtype),
        Values::I64(x) => Values::I64(each_row(&x, count, inner, |row| ints(row, op))),
    };
    match dtype {
        DType::F8E4M3 | DType::F8E5M2 => {
            Err(Error::Type { op: op.name(), what: "the tensor", found: dtype, expected: "types other than fp8" })
        }
        _ => values.into_tensor(dtype, &to),
    }
}

fn each_row<T, U>(x: &[T], count: usize, inner: usize, f: impl Fn(&[T]) -> U) -> Vec<U> {
    (0..count).map(|i| f(&x[i * inner..(i + 1) * inner])).collect()
}

/// Of floats, with sums of doubles.
fn floats(x: &[f64], count: usize, inner: usize, op: Reduce, dtype: DType) -> Values {
    if dtype.is_integer() {
        return Values::I64(each_row(x, count, inner, |row| match op {
            Reduce::ArgMin => first(row, |x, best| x < best),
            Reduce::ArgMax => first(row, |x, best| x > best),
            Reduce::Any => row.iter().any(|x| *x != 0.0).into(),
            _ => row.iter().all(|x| *x != 0.0).into(),
        }));
    }
    Values::F64(each_row(x, count, inner, |row| {
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

/// The index of the first that no other is better than; NaN is the best.
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

fn ints(row: &[i64], op: Reduce) -> i64 {
    let place = |wanted: Option<&i64>| wanted.and_then(|wanted| row.iter().position(|x| x == wanted)).unwrap_or(0) as i64;
    match op {
        Reduce::Sum => row.iter().fold(0, |a: i64, b| a.wrapping_add(*b)),
        Reduce::Prod => row.iter().fold(1, |a: i64, b| a.wrapping_mul(*b)),
        Reduce::Min => row.iter().copied().min().unwrap_or(0),
        Reduce::Max => row.iter().copied().max().unwrap_or(0),
        Reduce::ArgMin => place(row.iter().min()),
        Reduce::ArgMax => place(row.iter().max()),
        Reduce::Any => row.iter().any(|x| *x != 0).into(),
        Reduce::All => row.iter().all(|x| *x != 0).into(),
        _ => 0,
    }
}
