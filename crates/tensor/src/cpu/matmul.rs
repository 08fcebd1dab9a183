//! Products of weights with activations.

use std::cell::RefCell;
use std::marker::PhantomData;

use half::{bf16, f16};
use warpwave_kernels::Quant;

use super::exact::{self, Dense};
use super::packed::{Format, Packed, pack_group, with_format};
use super::pool::{parallel, threads};
use super::quant::dequantise;
use super::rounded::{self, Rounded};
use super::simd::{LANES, Path, dispatch};

/// Weights: rows of as many columns each, one behind the other.
#[derive(Debug, Clone, Copy)]
pub enum Matrix<'a> {
    /// `f32`.
    F32(&'a [f32]),
    /// `f16`.
    F16(&'a [f16]),
    /// `bf16`.
    Bf16(&'a [bf16]),
    /// GGUF's blocks as they are in files. They are rearranged again for each product: for many, use `Packed`.
    Quant(Quant, &'a [u8]),
    /// Quantised and rearranged once.
    Packed(&'a Packed),
}

/// How exactly products with quantised weights are computed. Those with plain weights are as exact as their type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Precision {
    /// In `f32`.
    Exact,
    /// With vectors of 15 bits (on a CPU, and few of them on an NVIDIA GPU) or of `f16` (many vectors on a GPU): several times as fast.
    #[default]
    Fast,
}

impl Matrix<'_> {
    fn check(&self, rows: usize, columns: usize) {
        let fits = match self {
            Matrix::F32(data) => rows.checked_mul(columns) == Some(data.len()),
            Matrix::F16(data) => rows.checked_mul(columns) == Some(data.len()),
            Matrix::Bf16(data) => rows.checked_mul(columns) == Some(data.len()),
            Matrix::Quant(quant, data) => {
                quant.gguf_type().is_some() && quant.row_bytes(columns).and_then(|bytes| bytes.checked_mul(rows)) == Some(data.len())
            }
            Matrix::Packed(packed) => [packed.rows(), packed.columns()] == [rows, columns],
        };
        assert!(fits, "these weights are not of {rows} rows of {columns} columns");
    }

    /// A row as numbers.
    ///
    /// # Panics
    /// If there is no such row of `out.len()` columns.
    pub fn row(&self, row: usize, out: &mut [f32]) {
        let columns = out.len();
        match self {
            Matrix::F32(data) => out.copy_from_slice(&data[row * columns..][..columns]),
            Matrix::F16(data) => widen(&data[row * columns..][..columns], out),
            Matrix::Bf16(data) => widen(&data[row * columns..][..columns], out),
            Matrix::Quant(quant, data) => {
                let bytes = quant.row_bytes(columns).unwrap_or_else(|| panic!("{columns} columns are no whole blocks of {quant}"));
                dequantise(*quant, &data[row * bytes..][..bytes], out);
            }
            Matrix::Packed(packed) => {
                assert_eq!(columns, packed.columns(), "columns");
                let mut blocks = vec![0; packed.quant().row_bytes(columns).unwrap_or(0)];
                packed.row(row, &mut blocks);
                dequantise(packed.quant(), &blocks, out);
            }
        }
    }
}

fn widen<D: Dense>(from: &[D], out: &mut [f32]) {
    for (out, from) in out.iter_mut().zip(from) {
        *out = from.number();
    }
}

/// Rows of a matrix of `columns` columns as numbers, one behind the other: what embeddings are.
///
/// # Panics
/// If a row is not there, or `out` is not of that many rows.
pub fn rows(matrix: Matrix<'_>, columns: usize, ids: &[u32], out: &mut [f32]) {
    assert_eq!(Some(out.len()), ids.len().checked_mul(columns), "{} rows of {columns} columns", ids.len());
    if columns > 0 {
        for (id, out) in ids.iter().zip(out.chunks_exact_mut(columns)) {
            matrix.row(*id as usize, out);
        }
    }
}

/// The result, rows of which are written by several threads, each its own columns.
#[derive(Clone, Copy)]
pub(super) struct Out<'a> {
    start: *mut f32,
    rows: usize,
    columns: usize,
    life: PhantomData<&'a mut [f32]>,
}

// SAFETY: no two threads write one place, as whoever shares it sees to.
unsafe impl Send for Out<'_> {}
// SAFETY: as above.
unsafe impl Sync for Out<'_> {}

impl<'a> Out<'a> {
    pub fn new(out: &'a mut [f32], columns: usize) -> Out<'a> {
        Out { start: out.as_mut_ptr(), rows: out.len().checked_div(columns).unwrap_or(0), columns, life: PhantomData }
    }

    /// Up to 16 columns of a row, fewer at its end. No two may be had at a time.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    fn part(&self, row: usize, column: usize) -> &mut [f32] {
        assert!(row < self.rows && column < self.columns);
        // SAFETY: it lies in the slice that this was made of, whose life this has; parts of other threads are others.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(row * self.columns + column), LANES.min(self.columns - column)) }
    }

    #[inline(always)]
    pub fn put(&self, row: usize, column: usize, values: &[f32; LANES]) {
        let part = self.part(row, column);
        match part.first_chunk_mut() {
            Some(whole) => *whole = *values,
            None => part.copy_from_slice(&values[..part.len()]),
        }
    }

    #[inline(always)]
    pub fn add(&self, row: usize, column: usize, values: &[f32; LANES]) {
        for (sum, value) in self.part(row, column).iter_mut().zip(values) {
            *sum += value;
        }
    }
}

/// Rows of activations that a part of the work has at most: their columns stay in the second cache.
const TOKENS: usize = 128;
/// Products below which other threads are not worth their while.
const FEW: usize = 1 << 15;

/// `out[m][n] = x[m][k] · weights[n][k]ᵀ`.
///
/// # Panics
/// If the slices are not of these sizes, or quantised weights have their scales not in their blocks (`Int8`, `Int4`).
pub fn matmul(weights: Matrix<'_>, n: usize, k: usize, x: &[f32], m: usize, out: &mut [f32], precision: Precision) {
    weights.check(n, k);
    assert_eq!(Some(x.len()), m.checked_mul(k), "{m} rows of {k} columns");
    assert_eq!(Some(out.len()), m.checked_mul(n), "{m} rows of {n} columns in the result");
    if out.is_empty() || k == 0 {
        out.fill(0.0);
        return;
    }
    match (weights, precision) {
        (Matrix::F32(data), _) => dense(data, k, x, m, out),
        (Matrix::F16(data), _) => dense(data, k, x, m, out),
        (Matrix::Bf16(data), _) => dense(data, k, x, m, out),
        (Matrix::Quant(quant, _), Precision::Exact) => with_format!(quant, F => exactly::<F>(weights, n, k, x, m, out)),
        (Matrix::Packed(packed), Precision::Exact) => with_format!(packed.quant(), F => exactly::<F>(weights, n, k, x, m, out)),
        (Matrix::Quant(quant, _), Precision::Fast) => with_format!(quant, F => with_rounded::<F>(weights, n, k, x, m, out)),
        (Matrix::Packed(packed), Precision::Fast) => with_format!(packed.quant(), F => with_rounded::<F>(weights, n, k, x, m, out)),
    }
}

/// Calls `run` with groups of 16 rows of weights and ranges of rows of activations, on several threads.
fn share(groups: usize, m: usize, products: usize, run: &(dyn Fn(std::ops::Range<usize>, (usize, usize)) + Sync)) {
    let threads = if products < FEW { 1 } else { threads() };
    let chunks = m.div_ceil(TOKENS);
    // A few parts more than threads: those that are slowed down take fewer.
    let wanted = if threads == 1 { 1 } else { (8 * threads).div_ceil(chunks) };
    let each = groups.div_ceil(wanted);
    let parts = groups.div_ceil(each);
    let part = |i: usize| {
        let (chunk, first) = (i / parts, i % parts * each);
        run(first..(first + each).min(groups), (chunk * TOKENS, (chunk * TOKENS + TOKENS).min(m)));
    };
    if threads == 1 { (0..parts * chunks).for_each(part) } else { parallel(parts * chunks, &part) }
}

/// Calls `run` with the rearranged blocks of each 16 rows.
fn with_groups(weights: Matrix<'_>, k: usize, groups: std::ops::Range<usize>, mut run: impl FnMut(usize, &[u8])) {
    match weights {
        Matrix::Packed(packed) => groups.for_each(|i| run(i, packed.group(i))),
        Matrix::Quant(quant, data) => {
            let row_bytes = quant.row_bytes(k).unwrap_or(0);
            let mut packed = vec![0; row_bytes * LANES];
            for i in groups {
                let rows = &data[i * LANES * row_bytes..];
                pack_group(quant, &rows[..rows.len().min(LANES * row_bytes)], row_bytes, &mut packed);
                run(i, &packed);
            }
        }
        _ => unreachable!("weights that are not quantised have no groups"),
    }
}

thread_local! {
    /// Room for activations, kept from product to product.
    static ROOM: RefCell<Rounded> = RefCell::default();
}

fn with_rounded<F: Format>(weights: Matrix<'_>, n: usize, k: usize, x: &[f32], m: usize, out: &mut [f32]) {
    let (path, out) = (Path::current(), Out::new(out, n));
    ROOM.with_borrow_mut(|rounded| {
        rounded.round::<F>(path, x, k);
        let x = &*rounded;
        share(n.div_ceil(LANES), m, n * k * m, &|groups, tokens| {
            with_groups(weights, k, groups, |i, group| {
                dispatch(path, rounded::Products::<F> { group, x, tokens, out, row: i * LANES, format: PhantomData });
            });
        });
    });
}

fn exactly<F: Format>(weights: Matrix<'_>, n: usize, k: usize, x: &[f32], m: usize, out: &mut [f32]) {
    let (path, out) = (Path::current(), Out::new(out, n));
    share(n.div_ceil(LANES), m, n * k * m, &|groups, tokens| {
        let mut panel: exact::Panel = [[0.0; LANES]; exact::COLUMNS];
        with_groups(weights, k, groups, |i, group| {
            for from in (0..k).step_by(exact::COLUMNS) {
                let panel = &mut panel[..exact::COLUMNS.min(k - from)];
                dispatch(path, exact::Unpack::<F> { group, from, out: panel, format: PhantomData });
                dispatch(path, exact::Products { panel, x: &x[from..], stride: k, tokens, out, row: i * LANES, add: from > 0 });
            }
        });
    });
}

fn dense<D: Dense>(weights: &[D], k: usize, x: &[f32], m: usize, out: &mut [f32]) {
    let (path, n) = (Path::current(), weights.len() / k);
    if m == 1 {
        // Parts of 16 rows are neighbours in the result.
        let out = std::sync::Mutex::new(out.chunks_mut(LANES).map(Some).collect::<Vec<_>>());
        share(n.div_ceil(LANES), 1, n * k, &|groups, _| {
            for i in groups {
                let taken = out.lock().ok().and_then(|mut out| out[i].take());
                if let Some(out) = taken {
                    let rows = &weights[i * LANES * k..][..out.len() * k];
                    dispatch(path, exact::Rows { rows, x, out });
                }
            }
        });
        return;
    }
    let out = Out::new(out, n);
    share(n.div_ceil(LANES), m, n * k * m, &|groups, tokens| {
        let mut panel: exact::Panel = [[0.0; LANES]; exact::COLUMNS];
        for i in groups {
            let count = LANES.min(n - i * LANES);
            for from in (0..k).step_by(exact::COLUMNS) {
                let panel = &mut panel[..exact::COLUMNS.min(k - from)];
                dispatch(path, exact::Transpose { rows: &weights[i * LANES * k + from..], stride: k, count, out: panel });
                dispatch(path, exact::Products { panel, x: &x[from..], stride: k, tokens, out, row: i * LANES, add: from > 0 });
            }
        }
    });
}
