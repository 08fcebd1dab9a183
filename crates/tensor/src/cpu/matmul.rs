//! Matrix products of weights and activations.

use std::cell::RefCell;
use std::marker::PhantomData;

use half::{bf16, f16};
use warpwave_kernels::Quant;

use super::interleaved::{Format, Interleaved, interleave_group, with_format};
use super::matmul_f32::{self, Dense};
use super::matmul_i15::{self, Activations};
use super::pool::{parallel, threads};
use super::quant::dequantize;
use super::simd::{Isa, LANES, dispatch};

/// Row-major weights.
#[derive(Debug, Clone, Copy)]
pub enum Matrix<'a> {
    /// `f32`.
    F32(&'a [f32]),
    /// `f16`.
    F16(&'a [f16]),
    /// `bf16`.
    Bf16(&'a [bf16]),
    /// GGUF blocks in file order. Each product interleaves them again: for several products use `Interleaved`.
    Quant(Quant, &'a [u8]),
    /// Quantized and interleaved once.
    Interleaved(&'a Interleaved),
}

/// How accurately products with quantized weights are computed. Products with plain weights have the accuracy of their type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Precision {
    /// In `f32`.
    Exact,
    /// With activations rounded to 15 bits (CPU; small batches on NVIDIA GPUs) or to `f16` (large batches on GPUs): several times as fast.
    #[default]
    Fast,
}

impl<'a> Matrix<'a> {
    /// Some rows of a plain matrix.
    ///
    /// # Panics
    /// If rows are out of range, or the matrix is interleaved and these are not all of its rows.
    pub(super) fn rows(self, rows: std::ops::Range<usize>, columns: usize) -> Matrix<'a> {
        let elements = rows.start * columns..rows.end * columns;
        match self {
            Matrix::F32(data) => Matrix::F32(&data[elements]),
            Matrix::F16(data) => Matrix::F16(&data[elements]),
            Matrix::Bf16(data) => Matrix::Bf16(&data[elements]),
            Matrix::Quant(quant, data) => {
                let bytes = quant.row_bytes(columns).unwrap_or(0);
                Matrix::Quant(quant, &data[rows.start * bytes..rows.end * bytes])
            }
            Matrix::Interleaved(weights) => {
                assert_eq!(rows, 0..weights.rows(), "rows of interleaved weights");
                self
            }
        }
    }
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
            Matrix::Interleaved(weights) => [weights.rows(), weights.columns()] == [rows, columns],
        };
        assert!(fits, "the weights do not have {rows} rows of {columns} columns");
    }

    /// Writes a row as `f32`.
    ///
    /// # Panics
    /// If `row` is out of range, or rows do not have `out.len()` columns.
    pub fn row(&self, row: usize, out: &mut [f32]) {
        let columns = out.len();
        match self {
            Matrix::F32(data) => out.copy_from_slice(&data[row * columns..][..columns]),
            Matrix::F16(data) => widen(&data[row * columns..][..columns], out),
            Matrix::Bf16(data) => widen(&data[row * columns..][..columns], out),
            Matrix::Quant(quant, data) => {
                let bytes =
                    quant.row_bytes(columns).unwrap_or_else(|| panic!("{columns} columns are not a multiple of the block size of {quant}"));
                dequantize(*quant, &data[row * bytes..][..bytes], out);
            }
            Matrix::Interleaved(weights) => {
                assert_eq!(columns, weights.columns(), "columns");
                let mut blocks = vec![0; weights.quant().row_bytes(columns).unwrap_or(0)];
                weights.row(row, &mut blocks);
                dequantize(weights.quant(), &blocks, out);
            }
        }
    }
}

fn widen<D: Dense>(from: &[D], out: &mut [f32]) {
    for (out, from) in out.iter_mut().zip(from) {
        *out = from.to_f32();
    }
}

/// Writes rows of a matrix of `columns` columns as `f32`.
///
/// # Panics
/// If an id is out of range, or `out` does not have `ids.len()` rows.
pub fn embedding(matrix: Matrix<'_>, columns: usize, ids: &[u32], out: &mut [f32]) {
    assert_eq!(Some(out.len()), ids.len().checked_mul(columns), "wrong output length for {} rows of {columns} columns", ids.len());
    if columns > 0 {
        for (id, out) in ids.iter().zip(out.chunks_exact_mut(columns)) {
            matrix.row(*id as usize, out);
        }
    }
}

/// A result that several threads write, each its own columns.
#[derive(Clone, Copy)]
pub(super) struct Out<'a> {
    start: *mut f32,
    rows: usize,
    columns: usize,
    lifetime: PhantomData<&'a mut [f32]>,
}

// SAFETY: callers give each thread its own rows or columns.
unsafe impl Send for Out<'_> {}
// SAFETY: as above.
unsafe impl Sync for Out<'_> {}

impl<'a> Out<'a> {
    pub fn new(out: &'a mut [f32], columns: usize) -> Out<'a> {
        Out { start: out.as_mut_ptr(), rows: out.len().checked_div(columns).unwrap_or(0), columns, lifetime: PhantomData }
    }

    /// Up to 16 columns of a row, fewer at its end. The caller holds no other part of these columns.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    fn part(&self, row: usize, column: usize) -> &mut [f32] {
        assert!(row < self.rows && column < self.columns);
        // SAFETY: the range is within the slice that this was made of and borrows; other threads use other parts.
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

/// Rows of activations of a task: their columns fit the L2 cache.
const TASK_TOKENS: usize = 128;
/// Multiplications below which one thread is faster than several.
const SERIAL_BELOW: usize = 1 << 15;

/// `out[m][n] = x[m][k] · weights[n][k]ᵀ`.
///
/// # Panics
/// If the slices do not have these sizes, or for quantized weights whose scales are not in their blocks (`Int8`, `Int4`).
pub fn matmul(weights: Matrix<'_>, n: usize, k: usize, x: &[f32], m: usize, out: &mut [f32], precision: Precision) {
    weights.check(n, k);
    assert_eq!(Some(x.len()), m.checked_mul(k), "expected {m} rows of {k} activations");
    assert_eq!(Some(out.len()), m.checked_mul(n), "expected {m} rows of {n} results");
    if out.is_empty() || k == 0 {
        out.fill(0.0);
        return;
    }
    match (weights, precision) {
        (Matrix::F32(data), _) => dense(data, k, x, m, out),
        (Matrix::F16(data), _) => dense(data, k, x, m, out),
        (Matrix::Bf16(data), _) => dense(data, k, x, m, out),
        (Matrix::Quant(quant, _), Precision::Exact) => with_format!(quant, F => in_f32::<F>(weights, n, k, x, m, out)),
        (Matrix::Interleaved(interleaved), Precision::Exact) => {
            with_format!(interleaved.quant(), F => in_f32::<F>(weights, n, k, x, m, out))
        }
        (Matrix::Quant(quant, _), Precision::Fast) => with_format!(quant, F => in_i15::<F>(weights, n, k, x, m, out)),
        (Matrix::Interleaved(interleaved), Precision::Fast) => {
            with_format!(interleaved.quant(), F => in_i15::<F>(weights, n, k, x, m, out))
        }
    }
}

/// Calls `run` with groups of 16 rows of weights and ranges of rows of activations, on several threads.
fn for_each_tile(groups: usize, m: usize, products: usize, run: &(dyn Fn(std::ops::Range<usize>, (usize, usize)) + Sync)) {
    let threads = if products < SERIAL_BELOW { 1 } else { threads() };
    let chunks = m.div_ceil(TASK_TOKENS);
    // More tasks than threads, so that a slow thread takes fewer.
    let wanted = if threads == 1 { 1 } else { (8 * threads).div_ceil(chunks) };
    let each = groups.div_ceil(wanted);
    let parts = groups.div_ceil(each);
    let part = |i: usize| {
        let (chunk, first) = (i / parts, i % parts * each);
        run(first..(first + each).min(groups), (chunk * TASK_TOKENS, (chunk * TASK_TOKENS + TASK_TOKENS).min(m)));
    };
    if threads == 1 { (0..parts * chunks).for_each(part) } else { parallel(parts * chunks, &part) }
}

/// Calls `run` with the interleaved blocks of each 16 rows.
fn with_groups(weights: Matrix<'_>, k: usize, groups: std::ops::Range<usize>, mut run: impl FnMut(usize, &[u8])) {
    match weights {
        Matrix::Interleaved(weights) => groups.for_each(|i| run(i, weights.group(i))),
        Matrix::Quant(quant, data) => {
            let row_bytes = quant.row_bytes(k).unwrap_or(0);
            let mut interleaved = vec![0; row_bytes * LANES];
            for i in groups {
                let rows = &data[i * LANES * row_bytes..];
                interleave_group(quant, &rows[..rows.len().min(LANES * row_bytes)], row_bytes, &mut interleaved);
                run(i, &interleaved);
            }
        }
        _ => unreachable!("unquantized weights have no quantization groups"),
    }
}

thread_local! {
    /// Rounded activations, kept from product to product to reuse the memory.
    static ACTIVATIONS: RefCell<Activations> = RefCell::default();
}

fn in_i15<F: Format>(weights: Matrix<'_>, n: usize, k: usize, x: &[f32], m: usize, out: &mut [f32]) {
    let (isa, out) = (Isa::current(), Out::new(out, n));
    ACTIVATIONS.with_borrow_mut(|rounded| {
        rounded.round::<F>(isa, x, k);
        let x = &*rounded;
        for_each_tile(n.div_ceil(LANES), m, n * k * m, &|groups, tokens| {
            with_groups(weights, k, groups, |i, group| {
                dispatch(isa, matmul_i15::Products::<F> { group, x, tokens, out, row: i * LANES, format: PhantomData });
            });
        });
    });
}

fn in_f32<F: Format>(weights: Matrix<'_>, n: usize, k: usize, x: &[f32], m: usize, out: &mut [f32]) {
    let (isa, out) = (Isa::current(), Out::new(out, n));
    for_each_tile(n.div_ceil(LANES), m, n * k * m, &|groups, tokens| {
        let mut panel: matmul_f32::Panel = [[0.0; LANES]; matmul_f32::COLUMNS];
        with_groups(weights, k, groups, |i, group| {
            for from in (0..k).step_by(matmul_f32::COLUMNS) {
                let panel = &mut panel[..matmul_f32::COLUMNS.min(k - from)];
                dispatch(isa, matmul_f32::Unpack::<F> { group, from, out: panel, format: PhantomData });
                dispatch(isa, matmul_f32::Products { panel, x: &x[from..], stride: k, tokens, out, row: i * LANES, add: from > 0 });
            }
        });
    });
}

fn dense<D: Dense>(weights: &[D], k: usize, x: &[f32], m: usize, out: &mut [f32]) {
    let (isa, n) = (Isa::current(), weights.len() / k);
    if m == 1 {
        // Each group of 16 rows is a chunk of the result.
        let out = std::sync::Mutex::new(out.chunks_mut(LANES).map(Some).collect::<Vec<_>>());
        for_each_tile(n.div_ceil(LANES), 1, n * k, &|groups, _| {
            for i in groups {
                let taken = out.lock().ok().and_then(|mut out| out[i].take());
                if let Some(out) = taken {
                    let rows = &weights[i * LANES * k..][..out.len() * k];
                    dispatch(isa, matmul_f32::Rows { rows, x, out });
                }
            }
        });
        return;
    }
    let out = Out::new(out, n);
    for_each_tile(n.div_ceil(LANES), m, n * k * m, &|groups, tokens| {
        let mut panel: matmul_f32::Panel = [[0.0; LANES]; matmul_f32::COLUMNS];
        for i in groups {
            let count = LANES.min(n - i * LANES);
            for from in (0..k).step_by(matmul_f32::COLUMNS) {
                let panel = &mut panel[..matmul_f32::COLUMNS.min(k - from)];
                dispatch(isa, matmul_f32::Transpose { rows: &weights[i * LANES * k + from..], stride: k, count, out: panel });
                dispatch(isa, matmul_f32::Products { panel, x: &x[from..], stride: k, tokens, out, row: i * LANES, add: from > 0 });
            }
        }
    });
}
