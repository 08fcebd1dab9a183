//! Counts of equal integers, and of numbers by bins of equal width.

use bytemuck::{Pod, Zeroable};
use warpwave_gpu::{Arg, Launch, Stream};

use crate::dtype::DType;
use crate::elementwise::plan::{Operand, PACK, fits_32_bits, merged, packed, to_dims};
use crate::error::{Error, Result};
use crate::kernels::{Kernels, check_no_overlap, dtype_error, launch_error, shape_error};
use crate::layout::MAX_DIMS;
use crate::program::{Program, SourceFile, source_file};
use crate::view::{View, ViewMut};

static HISTOGRAM: SourceFile = source_file!("histogram/histogram.cu", &["_packs", "_scalar", "_scalar64"]);

const THREADS: u32 = 256;
/// Bins that a block counts in shared memory: more would leave too few blocks resident.
const SHARED_BINS: u32 = 8192;
/// Vectors per thread, if there are enough: adding up a block's bins takes as long as counting some.
const EACH: u64 = 16;
/// The types of counts.
const COUNTS: [DType; 2] = [DType::U32, DType::I64];

/// Parameters of the kernels.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Bins {
    bins: u64,
    low: f64,
    high: f64,
    scale: f64,
}

fn program(op: &'static str, dtype: DType, counts: DType) -> Program {
    Program::new(&HISTOGRAM, op, &[dtype.name(), counts.name()], &[("THREADS", THREADS), ("SHARED_BINS", SHARED_BINS)])
}

impl Kernels {
    /// Counts how often each integer from 0 occurs; those beyond the result and negative ones are not counted.
    ///
    /// The result is one-dimensional, of `u32` or `i64`.
    pub fn bincount(&self, stream: &Stream, x: &View<'_>, out: &mut ViewMut<'_>) -> Result<()> {
        if !x.dtype().is_integer() {
            return Err(dtype_error("bincount", "input", x.dtype(), "an integer type"));
        }
        self.counted(stream, "bincount", *x, out, Bins::zeroed())
    }

    /// Counts elements by bins of equal width between `low` and `high`; those outside, and NaN, are not counted.
    ///
    /// An element x is in bin ⌊(x - low) · (bins / (high - low))⌋, computed in f32, or in f64 for f64 and integers of 32 and more bits;
    /// `high` is in the last bin. The result is one-dimensional, of `u32` or `i64`.
    pub fn histogram(&self, stream: &Stream, x: &View<'_>, low: f64, high: f64, out: &mut ViewMut<'_>) -> Result<()> {
        let bins = out.as_view().layout().len();
        let scale = bins as f64 / (high - low);
        if !(low < high && scale.is_finite()) {
            let reason = format!("expected finite limits with low < high, got {low} and {high}");
            return Err(Error::BadArgument { op: "histogram".to_owned(), reason });
        }
        self.counted(stream, "histogram", *x, out, Bins { bins: 0, low, high, scale })
    }

    fn counted(&self, stream: &Stream, op: &'static str, x: View<'_>, out: &mut ViewMut<'_>, bins: Bins) -> Result<()> {
        self.check_devices(op, stream, [("result", out.as_view()), ("input", x)].into_iter())?;
        if !COUNTS.contains(&out.dtype()) {
            return Err(dtype_error(op, "result", out.dtype(), DType::names(&COUNTS)));
        }
        let layout = *out.layout();
        if layout.shape().len() != 1 || !layout.is_contiguous() {
            return Err(shape_error(op, "result", &out.as_view(), "(bins), contiguous"));
        }
        check_no_overlap(op, "input", &x, &out.as_view())?;
        if layout.is_empty() {
            return Ok(());
        }
        let program = program(op, x.dtype(), out.dtype());
        let kernels = self.load(&program)?;
        self.fill(stream, 0, out)?;
        if x.layout().is_empty() {
            return Ok(());
        }
        let mut strides = [0; MAX_DIMS];
        strides[..x.layout().strides().len()].copy_from_slice(x.layout().strides());
        let operands = [Operand { address: x.address(), size: x.dtype().size(), strides }];
        let dims = merged(x.layout().shape(), &operands);
        let (way, dims) = match (fits_32_bits(&dims), packed(&dims, &operands, PACK / x.dtype().size())) {
            (true, Some(packs)) => (0, packs),
            (true, None) => (1, dims),
            (false, _) => (2, dims),
        };
        let dims = to_dims(&dims);
        let blocks = dims.n().div_ceil(u64::from(THREADS) * EACH).clamp(1, 1 << 14);
        let launch = Launch::new([blocks as u32, 1, 1], [THREADS, 1, 1]);
        let bins = Bins { bins: layout.len() as u64, ..bins };
        let args = (x.start(), out.as_view().start(), Arg::value(&bins), Arg::value(&dims));
        // SAFETY: the kernels were compiled for these types and take these arguments; all views were checked against their memory, and
        // elements without a bin are not counted.
        unsafe { kernels[way].launch(stream, launch, args) }.map_err(launch_error(op))
    }
}

/// Lists the programs.
pub(crate) fn programs() -> Vec<Program> {
    let of = |dtype: DType| {
        let ops = ["histogram", "bincount"].into_iter().filter(move |op| *op == "histogram" || dtype.is_integer());
        ops.flat_map(move |op| COUNTS.map(|counts| program(op, dtype, counts)))
    };
    DType::COMPUTE.into_iter().flat_map(of).collect()
}
