//! Gather, scatter and related operations.

use bytemuck::{Pod, Zeroable};
use warpwave_gpu::{Arg, Launch, Stream};

use crate::dtype::{DType, Scalar};
use crate::elementwise::copy_map;
use crate::elementwise::launch::{Call, Scalars};
use crate::elementwise::plan::{self, Dim, Operand, fits_32_bits, launch, merged, packed, to_dims};
use crate::error::{Error, Result};
use crate::kernels::{Kernels, check_no_overlap, check_same_dtype, dtype_error, launch_error, shape_error};
use crate::layout::{Layout, MAX_DIMS};
use crate::program::{Program, SourceFile, bits_type, source_file};
use crate::tuning::Tuning;
use crate::view::{View, ViewMut};

static GATHER: SourceFile = source_file!("index/index.cu", &["_packs", "_scalar", "_scalar64", "_wide", "_rows"]);
static SCATTER: SourceFile = source_file!("index/index.cu", &["_packs", "_scalar", "_scalar64"]);

static UNORDERED: SourceFile = source_file!("index/unordered.cu", &["_packs", "_scalar", "_scalar64"]);

/// Threads of a block.
const BLOCK: u32 = 256;

/// Vectors in flight per thread.
const UNROLL: u32 = 2;

/// The same, of a scatter without an order.
const UNROLL_UNORDERED: u32 = 4;

/// The largest row cached in shared memory, in bytes, so that several blocks are resident.
const MAX_ROW_BYTES: usize = 32 << 10;

/// Index types.
const INDICES: [DType; 5] = [DType::U8, DType::I16, DType::I32, DType::U32, DType::I64];

fn program(op: &'static str, dtype: DType, index: DType) -> Program {
    let (file, element, unroll) = match op {
        "gather" => (&GATHER, bits_type(dtype), UNROLL),
        "scatter" => (&SCATTER, bits_type(dtype), UNROLL),
        "scatter_add" => (&SCATTER, dtype.name(), UNROLL),
        "scatter_unordered" => (&UNORDERED, bits_type(dtype), UNROLL_UNORDERED),
        _ => (&UNORDERED, dtype.name(), UNROLL_UNORDERED),
    };
    Program::new(file, op, &[element, index.name()], &[("UNROLL", unroll)])
}

/// Parameters of the kernels: the indexed dimension.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Axis {
    size: u64,
    stride: u64,
    length: u64,
    from_stride: u64,
    index_stride: u64,
}

type Strides = [usize; MAX_DIMS];

fn strides(view: &View<'_>) -> Strides {
    let mut strides = [0; MAX_DIMS];
    strides[..view.layout().strides().len()].copy_from_slice(view.layout().strides());
    strides
}

/// The strides with one replaced.
fn with(mut strides: Strides, d: usize, stride: usize) -> Strides {
    strides[d] = stride;
    strides
}

/// Views of a gather or scatter, with the strides of the indices in the iterated shape.
struct Indexed<'a> {
    op: &'static str,
    x: View<'a>,
    out: View<'a>,
    indices: View<'a>,
    index_strides: Strides,
    axis: usize,
}

impl Kernels {
    /// Computes `out[i][j][k] = x[i][indices[i][j][k]][k]`, for `axis` 1.
    pub fn gather(&self, stream: &Stream, x: &View<'_>, indices: &View<'_>, axis: usize, out: &mut ViewMut<'_>) -> Result<()> {
        let out = out.as_view();
        self.check_indexed(stream, "gather", *x, *indices, out, axis)?;
        if indices.layout().shape() != out.layout().shape() {
            return Err(shape_error("gather", "indices", indices, format!("{:?}, the result's", out.layout().shape())));
        }
        within("gather", "input", x, &out, axis)?;
        let x_strides = with(strides(x), axis, 0);
        let step = (x.layout().shape()[axis], x.layout().strides()[axis]);
        self.gather_to(
            stream,
            &Indexed { op: "gather", x: *x, out, indices: *indices, index_strides: strides(indices), axis },
            x_strides,
            step,
        )
    }

    /// Computes `out[i][j][k] = x[i][indices[j]][k]`, for `axis` 1.
    pub fn index_select(&self, stream: &Stream, x: &View<'_>, indices: &View<'_>, axis: usize, out: &mut ViewMut<'_>) -> Result<()> {
        let (op, out) = ("index_select", out.as_view());
        self.check_indexed(stream, op, *x, *indices, out, axis)?;
        let one = one_index(op, indices, &out, axis)?;
        if (0..out.layout().shape().len()).any(|d| d != axis && out.layout().shape()[d] != x.layout().shape()[d]) {
            let expected = format!("{:?}, except in dimension {axis}", out.layout().shape());
            return Err(shape_error(op, "input", x, expected));
        }
        let step = (x.layout().shape()[axis], x.layout().strides()[axis]);
        let x_strides = with(strides(x), axis, 0);
        self.gather_to(stream, &Indexed { op, x: *x, out, indices: *indices, index_strides: one, axis }, x_strides, step)
    }

    /// Looks up rows of a table: the result has the shape of the indices plus one dimension, the row.
    pub fn embedding(&self, stream: &Stream, table: &View<'_>, indices: &View<'_>, out: &mut ViewMut<'_>) -> Result<()> {
        let (op, out) = ("embedding", out.as_view());
        let [rows, columns] = *table.layout().shape() else { return Err(shape_error(op, "table", table, "(rows, columns)")) };
        let shape = out.layout().shape();
        if shape.split_last() != Some((&columns, indices.layout().shape())) {
            let expected = format!("{:?} followed by a dimension of size {columns}", indices.layout().shape());
            return Err(shape_error(op, "result", &out, expected));
        }
        self.check_views(stream, op, *table, *indices, out)?;
        let last = shape.len() - 1;
        let x_strides = with([0; MAX_DIMS], last, table.layout().strides()[1]);
        let indexed = Indexed { op, x: *table, out, indices: *indices, index_strides: with(strides(indices), last, 0), axis: last };
        self.gather_to(stream, &indexed, x_strides, (rows, table.layout().strides()[0]))
    }

    /// Computes `out[i][indices[i][j][k]][k] = x[i][j][k]`, for `axis` 1. Of equal indices the last wins.
    ///
    /// Indices are first sorted along the axis, which takes scratch memory of 4 bytes plus an index each.
    pub fn scatter(&self, stream: &Stream, out: &mut ViewMut<'_>, indices: &View<'_>, x: &View<'_>, axis: usize) -> Result<()> {
        self.scatter_to(stream, "scatter", out.as_view(), *indices, *x, axis)
    }

    /// Computes `out[i][indices[i][j][k]][k] += x[i][j][k]`, for `axis` 1.
    ///
    /// Deterministic: indices are sorted as for [`Kernels::scatter`], and equal ones are added in order by one thread, which is slow if
    /// thousands are equal.
    pub fn scatter_add(&self, stream: &Stream, out: &mut ViewMut<'_>, indices: &View<'_>, x: &View<'_>, axis: usize) -> Result<()> {
        self.scatter_to(stream, "scatter_add", out.as_view(), *indices, *x, axis)
    }

    /// Computes `out[i][indices[j]][k] += x[i][j][k]`, for `axis` 1, like [`Kernels::scatter_add`].
    pub fn index_add(&self, stream: &Stream, out: &mut ViewMut<'_>, indices: &View<'_>, x: &View<'_>, axis: usize) -> Result<()> {
        let call = self.index_add_call(stream, "index_add", out.as_view(), *indices, *x, axis)?;
        self.scattered(stream, "scatter_add", &call)
    }

    /// As [`Kernels::scatter`], but of equal indices any element is kept. Faster, and without scratch memory.
    pub fn scatter_unordered(&self, stream: &Stream, out: &mut ViewMut<'_>, indices: &View<'_>, x: &View<'_>, axis: usize) -> Result<()> {
        self.scatter_to(stream, "scatter_unordered", out.as_view(), *indices, *x, axis)
    }

    /// As [`Kernels::scatter_add`], but by atomics: equal indices are added in any order, and each addition is rounded. Floating-point
    /// results may differ between runs. Faster, and without scratch memory.
    pub fn scatter_add_unordered(
        &self,
        stream: &Stream,
        out: &mut ViewMut<'_>,
        indices: &View<'_>,
        x: &View<'_>,
        axis: usize,
    ) -> Result<()> {
        self.scatter_to(stream, "scatter_add_unordered", out.as_view(), *indices, *x, axis)
    }

    /// As [`Kernels::index_add`], but like [`Kernels::scatter_add_unordered`].
    pub fn index_add_unordered(&self, stream: &Stream, out: &mut ViewMut<'_>, indices: &View<'_>, x: &View<'_>, axis: usize) -> Result<()> {
        let call = self.index_add_call(stream, "index_add_unordered", out.as_view(), *indices, *x, axis)?;
        self.unordered(stream, "scatter_add_unordered", &call)
    }

    fn index_add_call<'a>(
        &self,
        stream: &Stream,
        op: &'static str,
        out: View<'a>,
        indices: View<'a>,
        x: View<'a>,
        axis: usize,
    ) -> Result<Indexed<'a>> {
        self.check_indexed(stream, op, x, indices, out, axis)?;
        let index_strides = one_index(op, &indices, &x, axis)?;
        if (0..x.layout().shape().len()).any(|d| d != axis && out.layout().shape()[d] != x.layout().shape()[d]) {
            let expected = format!("{:?}, except in dimension {axis}", out.layout().shape());
            return Err(shape_error(op, "input", &x, expected));
        }
        Ok(Indexed { op, x, out, indices, index_strides, axis })
    }

    /// Computes `out = mask ? value : x`. The mask is a `u8`, true if not 0; the value is rounded as by [`Kernels::fill`].
    pub fn masked_fill(
        &self,
        stream: &Stream,
        x: &View<'_>,
        mask: &View<'_>,
        value: impl Into<Scalar>,
        out: &mut ViewMut<'_>,
    ) -> Result<()> {
        self.masked_fill_to(stream, *x, *mask, value.into(), out.as_view())
    }

    /// Computes `x = mask ? value : x`.
    pub fn masked_fill_in_place(&self, stream: &Stream, x: &mut ViewMut<'_>, mask: &View<'_>, value: impl Into<Scalar>) -> Result<()> {
        self.masked_fill_to(stream, x.as_view(), *mask, value.into(), x.as_view())
    }

    fn masked_fill_to(&self, stream: &Stream, x: View<'_>, mask: View<'_>, value: Scalar, out: View<'_>) -> Result<()> {
        check_same_dtype("masked_fill", "mask", mask, DType::U8)?;
        check_same_dtype("masked_fill", "result", out, x.dtype())?;
        let scalars = Scalars { floats: [0.0; 2], ints: [value.to_bits(x.dtype()) as i64, 0] };
        let inputs = [("mask", mask), ("input", x)];
        self.run(stream, &Call { program: copy_map("masked_fill", x.dtype(), 2).program(self.tuning()), scalars, inputs: &inputs }, out)
    }

    /// Checks devices, types and overlap.
    fn check_views(&self, stream: &Stream, op: &'static str, x: View<'_>, indices: View<'_>, out: View<'_>) -> Result<()> {
        self.check_devices(op, stream, [("result", out), ("input", x), ("indices", indices)].into_iter())?;
        check_same_dtype(op, "input", x, out.dtype())?;
        if !INDICES.contains(&indices.dtype()) {
            return Err(dtype_error(op, "indices", indices.dtype(), "u8, i16, i32, u32 or i64"));
        }
        check_no_overlap(op, "input", &x, &out)?;
        check_no_overlap(op, "indices", &indices, &out)
    }

    /// Like `check_views`, and checks the axis.
    fn check_indexed(&self, stream: &Stream, op: &'static str, x: View<'_>, indices: View<'_>, out: View<'_>, axis: usize) -> Result<()> {
        self.check_views(stream, op, x, indices, out)?;
        let rank = out.layout().shape().len();
        if axis >= rank {
            return Err(Error::BadArgument {
                op: op.to_owned(),
                reason: format!("dimension {axis} is out of range for {rank} dimensions"),
            });
        }
        if x.layout().shape().len() != rank {
            return Err(shape_error(op, "input", &x, format!("of {rank} dimensions")));
        }
        Ok(())
    }

    /// Launches a gather; `x_strides` are without the indexed dimension, which has this size and stride.
    fn gather_to(&self, stream: &Stream, call: &Indexed<'_>, x_strides: Strides, (axis_size, step): (usize, usize)) -> Result<()> {
        let Indexed { op, x, out, indices, index_strides, .. } = *call;
        if out.layout().is_empty() {
            return Ok(());
        }
        let operands = [operand(&out, strides(&out)), operand(&indices, index_strides), operand(&x, x_strides)];
        let dims = merged(out.layout().shape(), &operands);
        let (size, small) = (out.dtype().size(), fits_32_bits(&dims));
        let wide = plan::PACK / size.max(indices.dtype().size());
        let row = axis_size * size;
        // Contiguous rows, with enough indices that most elements are read.
        let whole_rows = step == 1
            && dims[0].strides[2] == 0
            && row <= MAX_ROW_BYTES
            && row.is_multiple_of(plan::PACK)
            && dims[0].size >= axis_size / 2
            && x.address().is_multiple_of(plan::PACK as u64)
            && dims[1..].iter().all(|dim| (dim.strides[2] * size).is_multiple_of(plan::PACK));
        let (mut way, dims, each) = if !small {
            (2, dims, 1)
        } else if let Some(packs) = in_packs(&dims, &operands, size, step) {
            (0, packs, UNROLL)
        } else if let Some(packs) = packed(&dims, &operands[..2], wide).filter(|_| dims[0].strides[1] == 1) {
            (3, packs, 1)
        } else {
            (1, dims, UNROLL)
        };
        let mut launch = launch(dims.iter().map(|dim| dim.size as u64).product::<u64>().div_ceil(u64::from(each)), BLOCK);
        if way == 3 && whole_rows {
            let rows: usize = dims[1..].iter().map(|dim| dim.size).product();
            (way, launch) = (4, Launch::new([rows as u32, 1, 1], [BLOCK, 1, 1]).shared(row as u32));
        }
        let kernels = self.load(&program("gather", out.dtype(), indices.dtype()))?;
        let axis = Axis { size: axis_size as u64, stride: step as u64, ..Axis::zeroed() };
        let dims = to_dims(&dims);
        let args = (out.start(), indices.start(), x.start(), Arg::value(&axis), Arg::value(&dims));
        // SAFETY: the kernel was compiled for these types and takes these arguments; all views were checked against their memory, and
        // out-of-range indices read nothing.
        unsafe { kernels[way].launch(stream, launch, args) }.map_err(launch_error(op))
    }

    fn scatter_to(&self, stream: &Stream, op: &'static str, out: View<'_>, indices: View<'_>, x: View<'_>, axis: usize) -> Result<()> {
        self.check_indexed(stream, op, x, indices, out, axis)?;
        if indices.layout().shape() != x.layout().shape() {
            return Err(shape_error(op, "indices", &indices, format!("{:?}", x.layout().shape())));
        }
        within(op, "result", &out, &x, axis)?;
        let call = Indexed { op, x, out, indices, index_strides: strides(&indices), axis };
        match op {
            "scatter" | "scatter_add" => self.scattered(stream, op, &call),
            _ => self.unordered(stream, op, &call),
        }
    }

    /// Launches a scatter without an order.
    fn unordered(&self, stream: &Stream, kind: &'static str, call: &Indexed<'_>) -> Result<()> {
        let Indexed { op, x, out, indices, index_strides, axis } = *call;
        if x.layout().is_empty() || out.layout().is_empty() {
            return Ok(());
        }
        // Atomics exchange words, which must not reach beyond the result's memory.
        if kind == "scatter_add_unordered" && out.dtype().size() < 4 && !out.is_padded_to(4) {
            return self.scattered(stream, "scatter_add", call);
        }
        let operands = [operand(&x, strides(&x)), operand(&indices, index_strides), operand(&out, with(strides(&out), axis, 0))];
        let (dims, step) = (merged(x.layout().shape(), &operands), out.layout().strides()[axis]);
        let (way, dims) = match (fits_32_bits(&dims), in_packs(&dims, &operands, out.dtype().size(), step)) {
            (true, Some(packs)) => (0, packs),
            (true, None) => (1, dims),
            (false, _) => (2, dims),
        };
        let kernels = self.load(&program(kind, out.dtype(), indices.dtype()))?;
        let (axis, dims) = ([out.layout().shape()[axis] as u64, step as u64], to_dims(&dims));
        let args = (out.start(), indices.start(), x.start(), Arg::value(&axis), Arg::value(&dims));
        let launch = launch(dims.n().div_ceil(u64::from(UNROLL_UNORDERED)), BLOCK);
        // SAFETY: the kernel was compiled for these types and takes these arguments; all views were checked against their memory, out-of-range
        // indices write nothing, and elements with equal indices are written whole or added by atomics.
        unsafe { kernels[way].launch(stream, launch, args) }.map_err(launch_error(op))
    }

    fn scattered(&self, stream: &Stream, kind: &'static str, call: &Indexed<'_>) -> Result<()> {
        let Indexed { op, x, out, indices, index_strides, axis } = *call;
        let shape = x.layout().shape();
        if x.layout().is_empty() || out.layout().is_empty() {
            return Ok(());
        }
        // Sort each row of indices once; broadcast rows share it.
        let rank = shape.len();
        let others: Vec<usize> = (0..rank).filter(|d| *d != axis).collect();
        let once = |d: usize| if index_strides[d] == 0 { 1 } else { shape[d] };
        let rows: usize = others.iter().map(|d| once(*d)).product();
        let x_strides = strides(&x);
        let columns_first = others.iter().any(|d| shape[*d] > 1 && x_strides[*d] < x_strides[axis]);
        // Sorted indices have the memory order of the scattered input, so that accesses coalesce.
        let (length, mut step, mut sorted_strides) = (shape[axis], if columns_first { 1 } else { shape[axis] }, [0; MAX_DIMS]);
        for d in others.iter().rev().filter(|d| once(**d) > 1) {
            sorted_strides[*d] = step;
            step *= shape[*d];
        }
        sorted_strides[axis] = if columns_first { rows } else { 1 };
        let all: Vec<usize> = others.iter().copied().chain([axis]).collect();
        let row_shape: Vec<usize> = all.iter().map(|d| if *d == axis { length } else { once(*d) }).collect();
        let layout = |strides: &Strides, offset: usize| {
            let strides: Vec<usize> = all.iter().map(|d| strides[*d]).collect();
            Layout::new(&row_shape, &strides, offset)
        };
        let ids = indices.with_layout(layout(&index_strides, indices.layout().offset())?)?;
        let Some(all) = rows.checked_mul(length).filter(|all| *all < 1 << 48) else {
            return Err(Error::BadArgument {
                op: op.to_owned(),
                reason: format!("{rows} rows of {length} indices exceed the limit of 2^48 elements"),
            });
        };
        let mut sorted = stream.alloc::<u8>(all * indices.dtype().size()).map_err(launch_error(op))?;
        let mut order = stream.alloc::<u32>(all).map_err(launch_error(op))?;
        let sorted = ViewMut::of_bytes(&mut sorted, indices.dtype(), layout(&sorted_strides, 0)?)?;
        let order = ViewMut::new(&mut order, layout(&sorted_strides, 0)?)?;
        let (sorted, order) = (sorted.as_view(), order.as_view());
        self.order(stream, op, ids, false, Some(sorted), Some(order))?;

        let operands = [
            operand(&x, x_strides),
            operand(&sorted, sorted_strides),
            operand(&out, with(strides(&out), axis, 0)),
            Operand { address: 0, size: 1, strides: with([0; MAX_DIMS], axis, 1) },
        ];
        let out_stride = out.layout().strides()[axis];
        let dims = merged(shape, &operands);
        let (way, dims) = match fits_32_bits(&dims) {
            false => (2, dims),
            true => match in_packs(&dims, &operands, out.dtype().size(), out_stride) {
                Some(packs) if dims[0].strides[3] == 0 => (0, packs),
                _ => (1, dims),
            },
        };
        let kernels = self.load(&program(kind, out.dtype(), indices.dtype()))?;
        let axis = Axis {
            size: out.layout().shape()[axis] as u64,
            stride: out_stride as u64,
            length: length as u64,
            from_stride: x_strides[axis] as u64,
            index_stride: sorted_strides[axis] as u64,
        };
        let dims = to_dims(&dims);
        let args = (out.start(), sorted.start(), order.start(), x.start(), Arg::value(&axis), Arg::value(&dims));
        // SAFETY: the kernel was compiled for these types and takes these arguments; all views were checked against their memory,
        // out-of-range indices write nothing, and equal indices are handled by one thread.
        unsafe { kernels[way].launch(stream, launch(dims.n(), BLOCK), args) }.map_err(launch_error(op))
    }
}

fn operand(view: &View<'_>, strides: Strides) -> Operand {
    Operand { address: view.address(), size: view.dtype().size(), strides }
}

/// Returns the dimensions in vectors, if the innermost is contiguous and shares one index (the second operand).
fn in_packs(dims: &[Dim], operands: &[Operand], size: usize, step: usize) -> Option<Vec<Dim>> {
    let width = plan::PACK / size;
    let inner = dims[0].strides;
    let fits = inner[1] == 0 && inner[0] == 1 && inner[2] == 1 && step.is_multiple_of(width);
    if fits { packed(dims, operands, width) } else { None }
}

/// Fails if a view is smaller than the iterated one in a dimension other than the axis.
fn within(op: &str, what: &'static str, view: &View<'_>, iterated: &View<'_>, axis: usize) -> Result<()> {
    let shapes = view.layout().shape().iter().zip(iterated.layout().shape());
    if shapes.enumerate().any(|(d, (has, asked))| d != axis && has < asked) {
        let expected = format!("at least {:?}, except in dimension {axis}", iterated.layout().shape());
        return Err(shape_error(op, what, view, expected));
    }
    Ok(())
}

/// Returns the strides of 1-D indices in the iterated shape.
fn one_index(op: &str, indices: &View<'_>, iterated: &View<'_>, axis: usize) -> Result<Strides> {
    let length = iterated.layout().shape()[axis];
    if indices.layout().shape() != [length] {
        return Err(shape_error(op, "indices", indices, format!("[{length}], one index per position of dimension {axis}")));
    }
    Ok(with([0; MAX_DIMS], axis, indices.layout().strides()[0]))
}

/// Lists the programs.
pub(crate) fn programs(tuning: &Tuning) -> Vec<Program> {
    let mut programs = Vec::new();
    for dtype in DType::COMPUTE {
        programs.push(copy_map("masked_fill", dtype, 2).program(tuning));
        for index in INDICES {
            let ops = ["gather", "scatter", "scatter_add", "scatter_unordered", "scatter_add_unordered"];
            programs.extend(ops.map(|op| program(op, dtype, index)));
        }
    }
    // Copies are the same for types of one size.
    let mut seen = std::collections::HashSet::new();
    programs.retain(|program| seen.insert(*program));
    programs
}

#[cfg(test)]
mod tests {
    use warpwave_jit::Jit;
    use warpwave_test_support::virtual_driver;

    use super::*;

    /// Safe code cannot create overlapping views: only tests inside the crate can.
    #[test]
    fn what_is_read_is_not_written() {
        let device = virtual_driver().device(0).unwrap();
        let (kernels, stream) = (Kernels::new(&device, &Jit::default()), device.stream().unwrap());
        let buffer = stream.upload(&vec![0u8; 1024]).unwrap();
        let view = |offset, dtype| View::of_bytes(&buffer, dtype, Layout::new(&[4, 4], &[4, 1], offset).unwrap()).unwrap();
        let out = view(0, DType::U32);
        let (x, ids) = (view(64, DType::U32), view(128, DType::U32));
        let gather = |x, ids| kernels.check_indexed(&stream, "gather", x, ids, out, 0);
        let order = |x, values, indices| kernels.order(&stream, "topk", x, true, values, Some(indices));
        assert!(gather(x, ids).is_ok());
        for rejected in [
            gather(out, ids),
            gather(x, out),
            gather(view(15, DType::U32), ids),
            kernels.scatter_to(&stream, "scatter", out, ids, out, 0),
            kernels.scatter_to(&stream, "scatter", out, out, x, 0),
            order(x, Some(x), out),
            order(x, None, x),
            order(x, Some(out), out),
            order(x, Some(view(8, DType::U32)), out),
        ] {
            assert!(matches!(rejected, Err(Error::Overlap { .. })), "{rejected:?}");
        }
        assert!(stream.download(&buffer).unwrap().iter().all(|byte| *byte == 0));
    }
}
