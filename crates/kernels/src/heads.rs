//! What operations on views of (sequence, token, head, element) share.

use bytemuck::{Pod, Zeroable};
use warpwave_gpu::{Arg, Launch};

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::{wrong_shape, wrong_type};
use crate::layout::Layout;
use crate::view::View;

/// The float types of these operations.
pub(crate) const FLOATS: [DType; 4] = [DType::F32, DType::F16, DType::Bf16, DType::F64];
/// The types that places are counted in.
pub(crate) const COUNTS: [DType; 3] = [DType::I32, DType::U32, DType::I64];

/// Bytes that are read or written at once.
const PACK: usize = 16;
/// Threads of a block.
const BLOCK: usize = 256;

/// Refuses a type that is none of these.
pub(crate) fn one_of(op: &str, what: &'static str, view: &View<'_>, types: &[DType]) -> Result<()> {
    if types.contains(&view.dtype()) {
        return Ok(());
    }
    let names: Vec<&str> = types.iter().map(|dtype| dtype.name()).collect();
    Err(wrong_type(op, what, view.dtype(), names.join(", ")))
}

/// Refuses another shape.
pub(crate) fn same_shape(op: &str, what: &'static str, view: &View<'_>, shape: &[usize]) -> Result<()> {
    if view.layout().shape() == shape { Ok(()) } else { Err(wrong_shape(op, what, view, format!("it takes {shape:?}"))) }
}

/// The sizes of so many dimensions.
pub(crate) fn sizes<const N: usize>(op: &str, what: &'static str, view: &View<'_>, names: &str) -> Result<[usize; N]> {
    view.layout().shape().try_into().map_err(|_| wrong_shape(op, what, view, format!("it takes ({names})")))
}

/// The strides of a layout of `N` dimensions, as the kernels take them.
pub(crate) fn steps<const N: usize>(layout: &Layout) -> [i64; N] {
    let mut steps = [0; N];
    steps.iter_mut().zip(layout.strides()).for_each(|(step, stride)| *step = *stride as i64);
    steps
}

/// The strides of a view of (sequence, token, head, element), as the struct of the kernels.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Steps {
    sequence: i64,
    token: i32,
    head: i32,
    element: i32,
    padding: i32,
}

impl Steps {
    pub fn of(op: &str, view: &View<'_>) -> Result<Steps> {
        let mut steps = [0; 4];
        near(op, view, 1, &mut steps[1..])?;
        let sequence = view.layout().strides()[0] as i64;
        Ok(Steps { sequence, token: steps[1], head: steps[2], element: steps[3], padding: 0 })
    }
}

/// The strides from dimension `first` on, which 32 bits hold; those of one element do not count.
fn near(op: &str, view: &View<'_>, first: usize, steps: &mut [i32]) -> Result<()> {
    let dims = view.layout().shape().iter().zip(view.layout().strides()).skip(first);
    for (step, (size, stride)) in steps.iter_mut().zip(dims) {
        let stride = if *size > 1 { *stride } else { 0 };
        *step = small(op, "a step between elements", stride)?;
    }
    Ok(())
}

/// The strides of few numbers.
pub(crate) fn few<const N: usize>(op: &str, view: &View<'_>) -> Result<[i32; N]> {
    let mut steps = [0; N];
    near(op, view, 0, &mut steps)?;
    Ok(steps)
}

/// A number that 32 bits hold, and a step beyond it too.
pub(crate) fn small(op: &str, what: &str, number: usize) -> Result<i32> {
    let fits = i32::try_from(number).ok().filter(|number| *number <= 1 << 30);
    fits.ok_or_else(|| Error::BadArgument { op: op.to_owned(), reason: format!("{number} is too much for {what}") })
}

/// A view's memory, or none.
pub(crate) fn pointer<'a>(view: Option<View<'a>>) -> Arg<'a> {
    view.map_or(Arg::from(0u64), |view| Arg::from(view.start()))
}

/// Whether the last dimension lies in packs of `width` elements, each at a multiple of its size.
pub(crate) fn packed(view: &View<'_>, width: usize) -> bool {
    let (layout, size) = (view.layout(), width * view.dtype().size());
    let (Some((last, outer)), Some((stride, strides))) = (layout.shape().split_last(), layout.strides().split_last()) else {
        return false;
    };
    let even = |(size, stride): (&usize, &usize)| *size <= 1 || stride.is_multiple_of(width);
    last.is_multiple_of(width) && *stride == 1 && view.address().is_multiple_of(size as u64) && outer.iter().zip(strides).all(even)
}

/// Elements of the widest of these types in a pack.
pub(crate) fn width(types: &[DType]) -> usize {
    PACK / types.iter().map(|dtype| dtype.size()).max().unwrap_or(PACK)
}

/// The same where each item takes a while: of few rows each has several blocks, in y, for a thread to have little to do.
pub(crate) fn spread_over_rows(rows: usize, items: usize, units: u32) -> Launch {
    const MOST: usize = 65535;
    let launch = over_rows(rows, items);
    let across = if launch.grid[0] <= units { items.div_ceil(launch.block[0] as usize).clamp(1, MOST) as u32 } else { 1 };
    Launch { grid: [launch.grid[0], across, 1], ..launch }
}

/// A launch over rows, with so many items in each: a row's threads side by side, and some rows in a block.
pub(crate) fn over_rows(rows: usize, items: usize) -> Launch {
    let across = items.clamp(1, BLOCK);
    let down = (BLOCK / across).clamp(1, rows.max(1));
    let blocks = rows.div_ceil(down).clamp(1, 1 << 22);
    Launch::new([blocks as u32, 1, 1], [across as u32, down as u32, 1])
}
