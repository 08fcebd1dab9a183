//! Distinct elements.

use warpwave_gpu::{Arg, Stream};

use super::blocks;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::{Kernels, check_same_dtype, dtype_error, launch_error, shape_error};
use crate::layout::Layout;
use crate::program::{Program, SourceFile, source_file};
use crate::view::{View, ViewMut};

static UNIQUE: SourceFile = source_file!("sort/unique.cu", &["_runs", "_lengths"]);

const OP: &str = "unique";
const THREADS: u32 = 256;
const ITEMS: u32 = 8;

pub(super) fn program(dtype: DType) -> Program {
    Program::new(&UNIQUE, OP, &[dtype.name()], &[("THREADS", THREADS), ("ITEMS", ITEMS)])
}

impl Kernels {
    /// Finds the distinct elements of a row, ascending, and returns their number.
    ///
    /// NaNs are equal to each other, and so are both zeros: of equal elements the first is kept. `inverse` gets the position of each
    /// element among the distinct ones, `counts` how often each occurs; both are `u32` or `i64`. All results have the size of the row,
    /// consecutive elements, and meaningless ones after the distinct ones. Waits for the device.
    pub fn unique(
        &self,
        stream: &Stream,
        x: &View<'_>,
        values: &mut ViewMut<'_>,
        inverse: Option<&mut ViewMut<'_>>,
        counts: Option<&mut ViewMut<'_>>,
    ) -> Result<usize> {
        let [n] = *x.layout().shape() else { return Err(shape_error(OP, "input", x, "(elements)")) };
        let values = values.as_view();
        let (inverse, counts) = (inverse.as_ref().map(|view| view.as_view()), counts.as_ref().map(|view| view.as_view()));
        let named = [("values", Some(values)), ("inverse", inverse), ("counts", counts)];
        let outputs: Vec<_> = named.into_iter().filter_map(|(what, view)| Some((what, view?))).collect();
        self.check_devices(OP, stream, outputs.iter().copied().chain([("input", *x)]))?;
        check_same_dtype(OP, "values", values, x.dtype())?;
        for (i, (what, view)) in outputs.iter().enumerate() {
            if i > 0 && ![DType::U32, DType::I64].contains(&view.dtype()) {
                return Err(dtype_error(OP, what, view.dtype(), "u32 or i64"));
            }
            if view.layout().shape() != [n] || !view.layout().is_contiguous() {
                return Err(shape_error(OP, what, view, format!("[{n}], contiguous")));
            }
            if x.overlaps(view) || outputs[..i].iter().any(|(_, other)| other.overlaps(view)) {
                return Err(Error::Overlap { op: OP.to_owned(), what: format!("{what} overlap the input or another result") });
            }
        }
        if n == 0 {
            return Ok(0);
        }
        let failed = || launch_error(OP);
        let wide = |view: Option<View<'_>>| u32::from(view.is_some_and(|view| view.dtype() == DType::I64));
        let row = Layout::contiguous(&[n])?;
        let mut sorted = stream.alloc::<u8>(n * x.dtype().size()).map_err(failed())?;
        let mut order = stream.alloc::<u32>(if inverse.is_some() { n } else { 0 }).map_err(failed())?;
        let mut starts = stream.alloc::<u32>(if counts.is_some() { n } else { 0 }).map_err(failed())?;
        {
            let sorted = ViewMut::of_bytes(&mut sorted, x.dtype(), row)?;
            let order = if inverse.is_some() { Some(ViewMut::new(&mut order, row)?) } else { None };
            self.order(stream, OP, *x, false, Some(sorted.as_view()), order.as_ref().map(ViewMut::as_view))?;
        }
        let kernels = self.load(&program(x.dtype()))?;
        let tiles = n.div_ceil((THREADS * ITEMS) as usize);
        // The next tile and the number of runs, then a word for each tile.
        let words = stream.alloc_zeroed::<u64>(2 + tiles).map_err(failed())?;
        let args = [
            Arg::from(&sorted),
            Arg::from(&order),
            values.start().into(),
            inverse.map_or(Arg::from(0u64), |view| view.start().into()),
            if counts.is_some() { Arg::from(&mut starts) } else { Arg::from(0u64) },
            words.slice(2..).map_err(failed())?.into(),
            Arg::from(&words),
            Arg::from(n as u64),
            Arg::from(wide(inverse)),
        ];
        // SAFETY: the kernel was compiled for this type and takes these arguments; results have an element for each of the row, of which
        // there are as many as runs at most, `order` is a permutation, and there is a word for every tile.
        unsafe { kernels[0].launch(stream, blocks(tiles, THREADS), &args[..]) }.map_err(failed())?;
        let found = stream.download(words.slice(..2).map_err(failed())?).map_err(failed())?;
        let runs = found[1] as usize;
        if let Some(counts) = counts {
            let args = (&starts, counts.start(), runs as u64, n as u64, wide(Some(counts)));
            // SAFETY: as above; the first kernel has written the starts of all runs.
            unsafe { kernels[1].launch(stream, blocks(runs.div_ceil(THREADS as usize).min(1 << 20), THREADS), args) }.map_err(failed())?;
        }
        Ok(runs)
    }
}
