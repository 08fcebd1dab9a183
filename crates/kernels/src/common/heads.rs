//! Checks, strides and launches for views of (sequence, token, head, element).

use bytemuck::{Pod, Zeroable};
use warpwave_gpu::{Arg, Launch};

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::{dtype_error, shape_error};
use crate::layout::Layout;
use crate::view::View;

/// Float types of these operations.
pub(crate) const FLOATS: [DType; 4] = [DType::F32, DType::F16, DType::Bf16, DType::F64];
/// Integer types of positions, slots and token ids.
pub(crate) const INDEX_DTYPES: [DType; 3] = [DType::I32, DType::U32, DType::I64];

/// Bytes of a vectorized access.
const PACK: usize = 16;
/// Threads of a block.
const BLOCK: usize = 256;

/// Fails if a view has none of these types.
pub(crate) fn check_dtype(op: &str, what: &'static str, view: &View<'_>, types: &[DType]) -> Result<()> {
    if types.contains(&view.dtype()) {
        return Ok(());
    }
    let names: Vec<&str> = types.iter().map(|dtype| dtype.name()).collect();
    Err(dtype_error(op, what, view.dtype(), names.join(" or ")))
}

/// Fails if a view has another shape.
pub(crate) fn check_shape(op: &str, what: &'static str, view: &View<'_>, shape: &[usize]) -> Result<()> {
    if view.layout().shape() == shape { Ok(()) } else { Err(shape_error(op, what, view, format!("{shape:?}"))) }
}

/// Returns the sizes of a view of `N` dimensions.
pub(crate) fn sizes<const N: usize>(op: &str, what: &'static str, view: &View<'_>, names: &str) -> Result<[usize; N]> {
    view.layout().shape().try_into().map_err(|_| shape_error(op, what, view, format!("({names})")))
}

/// Returns the strides of a layout of `N` dimensions.
pub(crate) fn strides<const N: usize>(layout: &Layout) -> [i64; N] {
    let mut strides = [0; N];
    strides.iter_mut().zip(layout.strides()).for_each(|(out, stride)| *out = *stride as i64);
    strides
}

/// Strides of a view of (sequence, token, head, element); mirrors `HeadStrides` in `head_strides.cuh`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct HeadStrides {
    sequence: i64,
    token: i32,
    head: i32,
    element: i32,
    padding: i32,
}

impl HeadStrides {
    pub fn of(op: &str, view: &View<'_>) -> Result<HeadStrides> {
        let mut strides = [0; 4];
        copy_strides(op, view, 1, &mut strides[1..])?;
        let sequence = view.layout().strides()[0] as i64;
        Ok(HeadStrides { sequence, token: strides[1], head: strides[2], element: strides[3], padding: 0 })
    }
}

/// Writes the strides from dimension `first` on, which must fit 32 bits; those of dimensions of size 1 become 0.
fn copy_strides(op: &str, view: &View<'_>, first: usize, strides: &mut [i32]) -> Result<()> {
    let dims = view.layout().shape().iter().zip(view.layout().strides()).skip(first);
    for (out, (size, stride)) in strides.iter_mut().zip(dims) {
        let stride = if *size > 1 { *stride } else { 0 };
        *out = small(op, "a stride", stride)?;
    }
    Ok(())
}

/// Returns the strides of a view, which must fit 32 bits.
pub(crate) fn strides_i32<const N: usize>(op: &str, view: &View<'_>) -> Result<[i32; N]> {
    let mut strides = [0; N];
    copy_strides(op, view, 0, &mut strides)?;
    Ok(strides)
}

/// Converts a size to 32 bits, with headroom for one stride.
pub(crate) fn small(op: &str, what: &str, number: usize) -> Result<i32> {
    let fits = i32::try_from(number).ok().filter(|number| *number <= 1 << 30);
    fits.ok_or_else(|| Error::BadArgument { op: op.to_owned(), reason: format!("{what}: {number} exceeds 2^30") })
}

/// The start of a view; null if `None`.
pub(crate) fn pointer<'a>(view: Option<View<'a>>) -> Arg<'a> {
    view.map_or(Arg::from(0u64), |view| Arg::from(view.start()))
}

/// Whether rows consist of aligned vectors of `width` elements.
pub(crate) fn packed(view: &View<'_>, width: usize) -> bool {
    let (layout, size) = (view.layout(), width * view.dtype().size());
    let (Some((last, outer)), Some((stride, strides))) = (layout.shape().split_last(), layout.strides().split_last()) else {
        return false;
    };
    let even = |(size, stride): (&usize, &usize)| *size <= 1 || stride.is_multiple_of(width);
    last.is_multiple_of(width) && *stride == 1 && view.address().is_multiple_of(size as u64) && outer.iter().zip(strides).all(even)
}

/// Returns the elements of a 16-byte vector of the widest of these types.
pub(crate) fn width(types: &[DType]) -> usize {
    PACK / types.iter().map(|dtype| dtype.size()).max().unwrap_or(PACK)
}

/// Like [`row_launch`], but with several blocks per row (in y) where there are few rows, for items that take long.
pub(crate) fn wide_row_launch(rows: usize, items: usize, units: u32) -> Launch {
    const MAX: usize = 65535;
    let launch = row_launch(rows, items);
    let across = if launch.grid[0] <= units { items.div_ceil(launch.block[0] as usize).clamp(1, MAX) as u32 } else { 1 };
    Launch { grid: [launch.grid[0], across, 1], ..launch }
}

/// Returns a launch over rows of `items` items: threads along a row, several short rows per block.
pub(crate) fn row_launch(rows: usize, items: usize) -> Launch {
    let across = items.clamp(1, BLOCK);
    let down = (BLOCK / across).clamp(1, rows.max(1));
    let blocks = rows.div_ceil(down).clamp(1, 1 << 22);
    Launch::new([blocks as u32, 1, 1], [across as u32, down as u32, 1])
}
