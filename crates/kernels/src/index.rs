//! Elements by their indices.

use bytemuck::{Pod, Zeroable};
use warpwave_gpu::{Arg, Launch, Stream};

use crate::dtype::{DType, Scalar};
use crate::elementwise::moving;
use crate::error::{Error, Result};
use crate::headers;
use crate::kernels::{Kernels, apart, refused, same_type, wrong_shape, wrong_type};
use crate::layout::{Layout, MOST_DIMS};
use crate::map::{Call, Scalars};
use crate::plan::{self, Dim, Operand, is_small, laid_out, launch, merged, packed};
use crate::source::{File, Recipe, carrier};
use crate::tuning::Tuning;
use crate::view::{View, ViewMut};

const TEXTS: &[&str] = &[headers::TYPES, headers::PACK, headers::MAP, include_str!("cu/index.cu")];
static GATHER: File = File { name: "index.cu", texts: TEXTS, kernels: &["_packs", "_single", "_single64", "_wide", "_rows"] };
static SCATTER: File = File { name: "index.cu, scattering", texts: TEXTS, kernels: &["_packs", "_single", "_single64"] };

/// Threads of a block.
const BLOCK: u32 = 256;

/// Packs that a thread has under way at once.
const UNROLL: u32 = 2;

/// Bytes of a row that is kept in shared memory at most: several blocks are at work at once.
const MOST_OF_A_ROW: usize = 32 << 10;

/// The types of indices.
const INDICES: [DType; 5] = [DType::U8, DType::I16, DType::I32, DType::U32, DType::I64];

fn recipe(op: &'static str, dtype: DType, index: DType) -> Recipe {
    let (file, element) = match op {
        "gather" => (&GATHER, carrier(dtype)),
        "scatter" => (&SCATTER, carrier(dtype)),
        _ => (&SCATTER, dtype.name()),
    };
    Recipe::new(file, op, &[element, index.name()], &[("UNROLL", UNROLL)])
}

/// As the struct of the kernels: the dimension that is indexed.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Axis {
    places: u64,
    step: u64,
    length: u64,
    from_step: u64,
    index_step: u64,
}

type Strides = [usize; MOST_DIMS];

fn strides(view: &View<'_>) -> Strides {
    let mut strides = [0; MOST_DIMS];
    strides[..view.layout().strides().len()].copy_from_slice(view.layout().strides());
    strides
}

/// The strides with this one changed.
fn with(mut strides: Strides, d: usize, stride: usize) -> Strides {
    strides[d] = stride;
    strides
}

/// What is gathered or scattered: its views, and how the indices lie in the shape that is walked.
struct Indexed<'a> {
    op: &'static str,
    x: View<'a>,
    out: View<'a>,
    indices: View<'a>,
    index_strides: Strides,
    axis: usize,
}

impl Kernels {
    /// `out[i][j][k] = x[i][indices[i][j][k]][k]`, with `axis` 1: an index of that dimension for each element of the result.
    pub fn gather(&self, stream: &Stream, x: &View<'_>, indices: &View<'_>, axis: usize, out: &mut ViewMut<'_>) -> Result<()> {
        let out = out.as_view();
        self.check_indexed(stream, "gather", *x, *indices, out, axis)?;
        if indices.layout().shape() != out.layout().shape() {
            return Err(wrong_shape("gather", "the indices", indices, format!("the result has {:?}", out.layout().shape())));
        }
        within("gather", "the input", x, &out, axis)?;
        let x_strides = with(strides(x), axis, 0);
        let step = (x.layout().shape()[axis], x.layout().strides()[axis]);
        self.gather_to(
            stream,
            &Indexed { op: "gather", x: *x, out, indices: *indices, index_strides: strides(indices), axis },
            x_strides,
            step,
        )
    }

    /// `out[i][j][k] = x[i][indices[j]][k]`, with `axis` 1: some places of that dimension.
    pub fn index_select(&self, stream: &Stream, x: &View<'_>, indices: &View<'_>, axis: usize, out: &mut ViewMut<'_>) -> Result<()> {
        let (op, out) = ("index_select", out.as_view());
        self.check_indexed(stream, op, *x, *indices, out, axis)?;
        let one = one_index(op, indices, &out, axis)?;
        if (0..out.layout().shape().len()).any(|d| d != axis && out.layout().shape()[d] != x.layout().shape()[d]) {
            let expected = format!("the result has {:?}; only dimension {axis} may differ", out.layout().shape());
            return Err(wrong_shape(op, "the input", x, expected));
        }
        let step = (x.layout().shape()[axis], x.layout().strides()[axis]);
        let x_strides = with(strides(x), axis, 0);
        self.gather_to(stream, &Indexed { op, x: *x, out, indices: *indices, index_strides: one, axis }, x_strides, step)
    }

    /// Rows of a table: to the shape of the indices the result adds one dimension, the rows'.
    pub fn embedding(&self, stream: &Stream, table: &View<'_>, indices: &View<'_>, out: &mut ViewMut<'_>) -> Result<()> {
        let (op, out) = ("embedding", out.as_view());
        let [rows, columns] = *table.layout().shape() else { return Err(wrong_shape(op, "the table", table, "it has rows and columns")) };
        let shape = out.layout().shape();
        if shape.split_last() != Some((&columns, indices.layout().shape())) {
            let expected = format!("indices of {:?} and rows of {columns} make its shape", indices.layout().shape());
            return Err(wrong_shape(op, "the result", &out, expected));
        }
        self.check_views(stream, op, *table, *indices, out)?;
        let last = shape.len() - 1;
        let x_strides = with([0; MOST_DIMS], last, table.layout().strides()[1]);
        let indexed = Indexed { op, x: *table, out, indices: *indices, index_strides: with(strides(indices), last, 0), axis: last };
        self.gather_to(stream, &indexed, x_strides, (rows, table.layout().strides()[0]))
    }

    /// `out[i][indices[i][j][k]][k] = x[i][j][k]`, with `axis` 1. Where an index comes more than once, the last one's element stays.
    ///
    /// The indices are sorted along the axis first, in memory for 4 bytes each and their own size.
    pub fn scatter(&self, stream: &Stream, out: &mut ViewMut<'_>, indices: &View<'_>, x: &View<'_>, axis: usize) -> Result<()> {
        self.scatter_to(stream, "scatter", out.as_view(), *indices, *x, axis)
    }

    /// `out[i][indices[i][j][k]][k] += x[i][j][k]`, with `axis` 1.
    ///
    /// The same sum in every run: indices are sorted as for [`Kernels::scatter`], and what goes to one place is added in its order, by one
    /// thread. That is slow where thousands go to the same.
    pub fn scatter_add(&self, stream: &Stream, out: &mut ViewMut<'_>, indices: &View<'_>, x: &View<'_>, axis: usize) -> Result<()> {
        self.scatter_to(stream, "scatter_add", out.as_view(), *indices, *x, axis)
    }

    /// `out[i][indices[j]][k] += x[i][j][k]`, with `axis` 1; as [`Kernels::scatter_add`] does it.
    pub fn index_add(&self, stream: &Stream, out: &mut ViewMut<'_>, indices: &View<'_>, x: &View<'_>, axis: usize) -> Result<()> {
        let (op, out) = ("index_add", out.as_view());
        self.check_indexed(stream, op, *x, *indices, out, axis)?;
        let index_strides = one_index(op, indices, x, axis)?;
        if (0..x.layout().shape().len()).any(|d| d != axis && out.layout().shape()[d] != x.layout().shape()[d]) {
            let expected = format!("the result has {:?}; only dimension {axis} may differ", out.layout().shape());
            return Err(wrong_shape(op, "the input", x, expected));
        }
        self.scattered(stream, "scatter_add", &Indexed { op, x: *x, out, indices: *indices, index_strides, axis })
    }

    /// `out = mask ? value : x`. The mask is a `u8`, and holds where it is not 0; the value is rounded as by [`Kernels::fill`].
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

    /// `x = mask ? value : x`.
    pub fn masked_fill_in_place(&self, stream: &Stream, x: &mut ViewMut<'_>, mask: &View<'_>, value: impl Into<Scalar>) -> Result<()> {
        self.masked_fill_to(stream, x.as_view(), *mask, value.into(), x.as_view())
    }

    fn masked_fill_to(&self, stream: &Stream, x: View<'_>, mask: View<'_>, value: Scalar, out: View<'_>) -> Result<()> {
        same_type("masked_fill", "the mask", mask, DType::U8)?;
        same_type("masked_fill", "the result", out, x.dtype())?;
        let scalars = Scalars { floats: [0.0; 2], ints: [value.bits(x.dtype()) as i64, 0] };
        let inputs = [("the mask", mask), ("the input", x)];
        self.run(stream, &Call { recipe: moving("masked_fill", x.dtype(), 2).recipe(self.tuning()), scalars, inputs: &inputs }, out)
    }

    /// Refuses views of other devices or types, and inputs within the result.
    fn check_views(&self, stream: &Stream, op: &'static str, x: View<'_>, indices: View<'_>, out: View<'_>) -> Result<()> {
        self.check_devices(op, stream, [("the result", out), ("the input", x), ("the indices", indices)].into_iter())?;
        same_type(op, "the input", x, out.dtype())?;
        if !INDICES.contains(&indices.dtype()) {
            return Err(wrong_type(op, "the indices", indices.dtype(), "whole numbers"));
        }
        apart(op, "the input", &x, &out)?;
        apart(op, "the indices", &indices, &out)
    }

    /// The same, and what has not the axis.
    fn check_indexed(&self, stream: &Stream, op: &'static str, x: View<'_>, indices: View<'_>, out: View<'_>, axis: usize) -> Result<()> {
        self.check_views(stream, op, x, indices, out)?;
        let rank = out.layout().shape().len();
        if axis >= rank {
            return Err(Error::BadArgument { op: op.to_owned(), reason: format!("{rank} dimensions have no axis {axis}") });
        }
        if x.layout().shape().len() != rank {
            return Err(wrong_shape(op, "the input", &x, format!("the result has {rank} dimensions")));
        }
        Ok(())
    }

    /// `x_strides` without the dimension that is indexed, of which these are the places and the step between them.
    fn gather_to(&self, stream: &Stream, call: &Indexed<'_>, x_strides: Strides, (places, step): (usize, usize)) -> Result<()> {
        let Indexed { op, x, out, indices, index_strides, .. } = *call;
        if out.layout().is_empty() {
            return Ok(());
        }
        let operands = [operand(&out, strides(&out)), operand(&indices, index_strides), operand(&x, x_strides)];
        let dims = merged(out.layout().shape(), &operands);
        let (size, small) = (out.dtype().size(), is_small(&dims));
        let wide = plan::PACK / size.max(indices.dtype().size());
        let row = places * size;
        // All places of a row side by side, and enough indices that most are asked for.
        let whole_rows = step == 1
            && dims[0].strides[2] == 0
            && row <= MOST_OF_A_ROW
            && row.is_multiple_of(plan::PACK)
            && dims[0].size >= places / 2
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
        let kernels = self.load(&recipe("gather", out.dtype(), indices.dtype()))?;
        let axis = Axis { places: places as u64, step: step as u64, ..Axis::zeroed() };
        let dims = laid_out(&dims);
        let args = (out.start(), indices.start(), x.start(), Arg::value(&axis), Arg::value(&dims));
        // SAFETY: the kernel was made for these types and takes these arguments; the views' places were checked when they were made, and
        // an index beyond the input's places is not followed.
        unsafe { kernels[way].launch(stream, launch, args) }.map_err(refused(op))
    }

    fn scatter_to(&self, stream: &Stream, op: &'static str, out: View<'_>, indices: View<'_>, x: View<'_>, axis: usize) -> Result<()> {
        self.check_indexed(stream, op, x, indices, out, axis)?;
        if indices.layout().shape() != x.layout().shape() {
            return Err(wrong_shape(op, "the indices", &indices, format!("the input has {:?}", x.layout().shape())));
        }
        within(op, "the result", &out, &x, axis)?;
        self.scattered(stream, op, &Indexed { op, x, out, indices, index_strides: strides(&indices), axis })
    }

    fn scattered(&self, stream: &Stream, kind: &'static str, call: &Indexed<'_>) -> Result<()> {
        let Indexed { op, x, out, indices, index_strides, axis } = *call;
        let shape = x.layout().shape();
        if x.layout().is_empty() || out.layout().is_empty() {
            return Ok(());
        }
        // Each row of indices once: where they are repeated, one place is enough.
        let rank = shape.len();
        let others: Vec<usize> = (0..rank).filter(|d| *d != axis).collect();
        let once = |d: usize| if index_strides[d] == 0 { 1 } else { shape[d] };
        let rows: usize = others.iter().map(|d| once(*d)).product();
        let x_strides = strides(&x);
        let columns_first = others.iter().any(|d| shape[*d] > 1 && x_strides[*d] < x_strides[axis]);
        // The sorted lie as what is scattered does: neighbours are read by neighbours.
        let (length, mut step, mut sorted_strides) = (shape[axis], if columns_first { 1 } else { shape[axis] }, [0; MOST_DIMS]);
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
            return Err(Error::BadArgument { op: op.to_owned(), reason: format!("{rows} rows of {length} indices are too many") });
        };
        let mut sorted = stream.alloc::<u8>(all * indices.dtype().size()).map_err(refused(op))?;
        let mut order = stream.alloc::<u32>(all).map_err(refused(op))?;
        let sorted = ViewMut::of_bytes(&mut sorted, indices.dtype(), layout(&sorted_strides, 0)?)?;
        let order = ViewMut::new(&mut order, layout(&sorted_strides, 0)?)?;
        let (sorted, order) = (sorted.as_view(), order.as_view());
        self.order(stream, op, ids, false, Some(sorted), order)?;

        let operands = [
            operand(&x, x_strides),
            operand(&sorted, sorted_strides),
            operand(&out, with(strides(&out), axis, 0)),
            Operand { address: 0, size: 1, strides: with([0; MOST_DIMS], axis, 1) },
        ];
        let out_step = out.layout().strides()[axis];
        let dims = merged(shape, &operands);
        let (way, dims) = match is_small(&dims) {
            false => (2, dims),
            true => match in_packs(&dims, &operands, out.dtype().size(), out_step) {
                Some(packs) if dims[0].strides[3] == 0 => (0, packs),
                _ => (1, dims),
            },
        };
        let kernels = self.load(&recipe(kind, out.dtype(), indices.dtype()))?;
        let axis = Axis {
            places: out.layout().shape()[axis] as u64,
            step: out_step as u64,
            length: length as u64,
            from_step: x_strides[axis] as u64,
            index_step: sorted_strides[axis] as u64,
        };
        let dims = laid_out(&dims);
        let args = (out.start(), sorted.start(), order.start(), x.start(), Arg::value(&axis), Arg::value(&dims));
        // SAFETY: the kernel was made for these types and takes these arguments; the views' places were checked when they were made, an
        // index beyond the result's places is not followed, and one thread alone writes what equal indices lead to.
        unsafe { kernels[way].launch(stream, launch(dims.n(), BLOCK), args) }.map_err(refused(op))
    }
}

fn operand(view: &View<'_>, strides: Strides) -> Operand {
    Operand { address: view.address(), size: view.dtype().size(), strides }
}

/// The dimensions in packs, if elements lie in rows of them and all of a row have one index, the second operand.
fn in_packs(dims: &[Dim], operands: &[Operand], size: usize, step: usize) -> Option<Vec<Dim>> {
    let width = plan::PACK / size;
    let inner = dims[0].strides;
    let fits = inner[1] == 0 && inner[0] == 1 && inner[2] == 1 && step.is_multiple_of(width);
    if fits { packed(dims, operands, width) } else { None }
}

/// Refuses what has fewer places than another has, elsewhere than along the axis.
fn within(op: &str, what: &'static str, view: &View<'_>, walked: &View<'_>, axis: usize) -> Result<()> {
    let shapes = view.layout().shape().iter().zip(walked.layout().shape());
    if shapes.enumerate().any(|(d, (has, asked))| d != axis && has < asked) {
        let expected = format!("there are indices for {:?}; only dimension {axis} may be smaller", walked.layout().shape());
        return Err(wrong_shape(op, what, view, expected));
    }
    Ok(())
}

/// The strides of a row of indices in the shape of what they are for.
fn one_index(op: &str, indices: &View<'_>, walked: &View<'_>, axis: usize) -> Result<Strides> {
    let length = walked.layout().shape()[axis];
    if indices.layout().shape() != [length] {
        return Err(wrong_shape(op, "the indices", indices, format!("it takes one for each of the {length} places of dimension {axis}")));
    }
    Ok(with([0; MOST_DIMS], axis, indices.layout().strides()[0]))
}

/// Every program of these operations.
pub(crate) fn recipes(tuning: &Tuning) -> Vec<Recipe> {
    let mut recipes = Vec::new();
    for dtype in DType::ALL {
        recipes.push(moving("masked_fill", dtype, 2).recipe(tuning));
        for index in INDICES {
            recipes.extend(["gather", "scatter", "scatter_add"].map(|op| recipe(op, dtype, index)));
        }
    }
    // What is only moved is the same for several types.
    let mut seen = std::collections::HashSet::new();
    recipes.retain(|recipe| seen.insert(*recipe));
    recipes
}

#[cfg(test)]
mod tests {
    use warpwave_gpu::{Driver, Vendor};
    use warpwave_jit::Jit;

    use super::*;

    /// Borrows keep views of safe code apart: only in here can they be made to overlap.
    #[test]
    fn what_is_read_is_not_written() {
        let names = warpwave_vgpu::hip::Config::from_env().unwrap().names();
        // SAFETY: the virtual GPU's functions have the shapes of HIP's, which the table's rows declare.
        let driver = unsafe { Driver::in_process("vgpu", Vendor::Amd, warpwave_vgpu::hip::lookup, Some(names)) }.unwrap();
        let device = driver.device(0).unwrap();
        let (kernels, stream) = (Kernels::new(&device, &Jit::default()), device.stream().unwrap());
        let buffer = stream.upload(&vec![0u8; 1024]).unwrap();
        let view = |offset, dtype| View::of_bytes(&buffer, dtype, Layout::new(&[4, 4], &[4, 1], offset).unwrap()).unwrap();
        let out = view(0, DType::U32);
        let (x, ids) = (view(64, DType::U32), view(128, DType::U32));
        let gather = |x, ids| kernels.check_indexed(&stream, "gather", x, ids, out, 0);
        let order = |x, values, indices| kernels.order(&stream, "topk", x, true, values, indices);
        assert!(gather(x, ids).is_ok());
        for refused in [
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
            assert!(matches!(refused, Err(Error::Overlap { .. })), "{refused:?}");
        }
        assert!(stream.download(&buffer).unwrap().iter().all(|byte| *byte == 0));
    }
}
