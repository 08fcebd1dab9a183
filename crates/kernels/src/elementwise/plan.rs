//! Launch planning: which kernel, over which dimensions.

use bytemuck::{Pod, Zeroable};
use warpwave_gpu::Launch;

use crate::layout::MAX_DIMS;
use crate::tuning::TuningParam;

/// The most operands of a kernel, the result first.
pub(crate) const MAX_OPERANDS: usize = 4;

/// Threads per block of the transpose kernel.
pub(crate) const TRANSPOSE_THREADS: u32 = 256;
/// The most blocks of a launch; beyond it, blocks loop.
const MAX_BLOCKS: u64 = 1 << 22;
/// Bytes of a vectorized access.
pub(crate) const PACK: usize = 16;

/// The unroll parameter of a cheap function with this many inputs.
pub(crate) fn unroll(inputs: usize) -> TuningParam {
    match inputs {
        0 => TuningParam::UnrollFill,
        1 => TuningParam::UnrollOne,
        _ => TuningParam::UnrollMany,
    }
}

/// An operand: address of the first element, element size, strides.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Operand {
    pub address: u64,
    pub size: usize,
    pub strides: [usize; MAX_DIMS],
}

/// Dimensions as the kernels take them, innermost first; mirrors `Dims` in `dims.cuh`.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Dims {
    n: u64,
    rank: u32,
    padding: u32,
    shape: [u64; MAX_DIMS],
    magic: [u32; MAX_DIMS],
    shift: [u32; MAX_DIMS],
    strides: [[u64; MAX_DIMS]; MAX_OPERANDS],
}

impl Dims {
    /// The number of elements.
    pub fn n(&self) -> u64 {
        self.n
    }
}

/// A kernel variant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Variant {
    /// All operands contiguous: `n` elements, `head` of them before the first aligned address.
    Contiguous { n: u64, head: u64 },
    /// The innermost dimension consists of full vectors in every operand.
    Rows(Dims),
    /// Any layout, one element at a time.
    Scalar(Dims),
    /// As `Scalar`, with 64-bit indices.
    Scalar64(Dims),
}

/// A variant and its launch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Plan {
    pub variant: Variant,
    pub launch: Launch,
}

/// Plans operands of one shape, the result first, with at least one element.
pub(crate) fn plan(shape: &[usize], operands: &[Operand], unroll: u32, block: u32) -> Plan {
    let dims = merged(shape, operands);
    let width = PACK / operands.iter().map(|operand| operand.size).max().unwrap_or(PACK);
    let n: u64 = dims.iter().map(|dim| dim.size as u64).product();
    if let Some(head) = head(&dims, operands, width) {
        let packs = (n - head) / width as u64;
        return Plan { variant: Variant::Contiguous { n, head }, launch: launch(packs.div_ceil(u64::from(unroll)), block) };
    }
    let small = fits_32_bits(&dims);
    let packs = if small { packed(&dims, operands, width) } else { None };
    let variant = match &packs {
        Some(packs) => Variant::Rows(to_dims(packs)),
        None if small => Variant::Scalar(to_dims(&dims)),
        None => Variant::Scalar64(to_dims(&dims)),
    };
    Plan { variant, launch: launch(if packs.is_some() { n / width as u64 } else { n }, block) }
}

/// Whether 32 bits hold every index and offset.
pub(crate) fn fits_32_bits(dims: &[Dim]) -> bool {
    let last = |k: usize| dims.iter().map(|dim| (dim.size as u64 - 1) * dim.strides[k] as u64).sum::<u64>();
    dims.iter().map(|dim| dim.size as u64).product::<u64>() < 1 << 31 && (0..MAX_OPERANDS).all(|k| last(k) < 1 << 31)
}

pub(crate) fn launch(threads: u64, block: u32) -> Launch {
    let blocks = threads.div_ceil(u64::from(block)).clamp(1, MAX_BLOCKS);
    Launch::new([blocks as u32, 1, 1], [block, 1, 1])
}

/// Parameters of the transpose kernel: dimension `a` is contiguous in the input, `b` in the result.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Transpose {
    a: u64,
    b: u64,
    in_b: u64,
    out_a: u64,
    tiles_a: u64,
    tiles_b: u64,
    tiles: u64,
    rank: u32,
    in_packs: u32,
    out_packs: u32,
    padding: u32,
    shape: [u64; MAX_DIMS - 2],
    in_strides: [u64; MAX_DIMS - 2],
    out_strides: [u64; MAX_DIMS - 2],
}

/// Plans a tiled transpose, if the result is contiguous along a strided dimension of the input and both dimensions are long enough.
pub(crate) fn plan_transpose(shape: &[usize], operands: &[Operand]) -> Option<(Transpose, Launch)> {
    const SHORT: usize = 8;
    let [out, input] = operands else { return None };
    let mut dims = merged(shape, operands);
    if dims[0].strides[0] != 1 || dims[0].strides[1] == 1 || dims[0].size < SHORT {
        return None;
    }
    let a = dims.iter().position(|dim| dim.strides[1] == 1 && dim.size >= SHORT)?;
    let (a, b) = (dims.remove(a), dims.remove(0));
    let tile = match out.size {
        1 | 2 => 128,
        8 => 32,
        _ => 64,
    };
    let mut turn = Transpose::zeroed();
    (turn.a, turn.b, turn.in_b, turn.out_a) = (a.size as u64, b.size as u64, b.strides[1] as u64, a.strides[0] as u64);
    (turn.tiles_a, turn.tiles_b) = (turn.a.div_ceil(tile), turn.b.div_ceil(tile));
    turn.tiles = turn.tiles_a * turn.tiles_b * dims.iter().map(|dim| dim.size as u64).product::<u64>();
    turn.rank = dims.len() as u32;
    let aligned = |operand: &Operand, own: usize, k: usize| {
        let steps = dims.iter().map(|dim| dim.strides[k]).chain([own]);
        operand.address.is_multiple_of(PACK as u64) && steps.into_iter().all(|step| (step * operand.size).is_multiple_of(PACK))
    };
    turn.in_packs = u32::from(aligned(input, b.strides[1], 1));
    turn.out_packs = u32::from(aligned(out, a.strides[0], 0));
    for (d, dim) in dims.iter().enumerate() {
        (turn.shape[d], turn.out_strides[d], turn.in_strides[d]) = (dim.size as u64, dim.strides[0] as u64, dim.strides[1] as u64);
    }
    Some((turn, launch(turn.tiles * u64::from(TRANSPOSE_THREADS), TRANSPOSE_THREADS)))
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Dim {
    pub size: usize,
    pub strides: [usize; MAX_OPERANDS],
}

/// Returns the dimensions innermost first, in the result's memory order, merged where contiguous in every operand, without those of size 1.
pub(crate) fn merged(shape: &[usize], operands: &[Operand]) -> Vec<Dim> {
    let dim = |(d, size): (usize, &usize)| {
        let mut strides = [0; MAX_OPERANDS];
        operands.iter().enumerate().for_each(|(k, operand)| strides[k] = operand.strides[d]);
        Dim { size: *size, strides }
    };
    let mut dims: Vec<Dim> = shape.iter().enumerate().map(dim).filter(|dim| dim.size > 1).collect();
    dims.sort_by_key(|dim| dim.strides[0]);
    let mut result: Vec<Dim> = Vec::new();
    for dim in dims {
        match result.last_mut() {
            Some(inner) if (0..MAX_OPERANDS).all(|k| dim.strides[k] == inner.strides[k] * inner.size) => inner.size *= dim.size,
            _ => result.push(dim),
        }
    }
    if result.is_empty() {
        let mut strides = [0; MAX_OPERANDS];
        strides[..operands.len()].fill(1);
        result.push(Dim { size: 1, strides });
    }
    result
}

/// Returns the number of elements before the first address that is aligned in every operand, if all are contiguous and share it.
fn head(dims: &[Dim], operands: &[Operand], width: usize) -> Option<u64> {
    let [dim] = dims else { return None };
    if dim.strides[..operands.len()].iter().any(|stride| *stride != 1) {
        return None;
    }
    let ahead = |operand: &Operand| {
        let pack = (width * operand.size) as u64;
        operand.address.next_multiple_of(pack).wrapping_sub(operand.address) / operand.size as u64
    };
    let head = ahead(&operands[0]);
    operands.iter().all(|operand| ahead(operand) == head).then_some(head.min(dim.size as u64))
}

/// Returns the dimensions with the innermost in vectors, if every operand is aligned there or broadcast.
pub(crate) fn packed(dims: &[Dim], operands: &[Operand], width: usize) -> Option<Vec<Dim>> {
    let (inner, outer) = dims.split_first()?;
    let fits = |(k, operand): (usize, &Operand)| match inner.strides[k] {
        // The result is never broadcast.
        0 => k > 0,
        1 => operand.address.is_multiple_of((width * operand.size) as u64) && outer.iter().all(|dim| dim.strides[k].is_multiple_of(width)),
        _ => false,
    };
    if width == 1 || !inner.size.is_multiple_of(width) || !operands.iter().enumerate().all(fits) {
        return None;
    }
    let packs = Dim { size: inner.size / width, strides: inner.strides.map(|stride| stride * width) };
    Some(std::iter::once(packs).chain(outer.iter().copied()).collect())
}

pub(crate) fn to_dims(dims: &[Dim]) -> Dims {
    let mut result = Dims::zeroed();
    result.n = dims.iter().map(|dim| dim.size as u64).product();
    result.rank = dims.len() as u32;
    for (d, dim) in dims.iter().enumerate() {
        result.shape[d] = dim.size as u64;
        (result.magic[d], result.shift[d]) = divisor(dim.size as u64);
        (0..MAX_OPERANDS).for_each(|k| result.strides[k][d] = dim.strides[k] as u64);
    }
    result
}

/// Returns factor and shift of `x / by = (high half of x * factor + x) >> shift`, for `x` and `by` below 2³¹.
pub(crate) fn divisor(by: u64) -> (u32, u32) {
    if by >= 1 << 31 {
        return (0, 0);
    }
    let shift = by.next_power_of_two().trailing_zeros();
    let factor = ((1u64 << 32) * ((1u64 << shift) - by)) / by + 1;
    (factor as u32, shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operand(address: u64, size: usize, strides: &[usize]) -> Operand {
        let mut all = [0; MAX_DIMS];
        all[..strides.len()].copy_from_slice(strides);
        Operand { address, size, strides: all }
    }

    #[test]
    fn division_by_a_product_is_exact() {
        for by in (1..70u64).chain([127, 128, 129, 641, 65535, 65537, 1_000_003, (1 << 30) - 1, 1 << 30, (1 << 30) + 1, (1 << 31) - 1]) {
            let (factor, shift) = divisor(by);
            let some = [0, 1, 2, by - 1, by, by + 1, 2 * by - 1, 2 * by, 7 * by - 1, 7 * by, 12_345_678, (1 << 31) - 2, (1 << 31) - 1];
            for x in some.into_iter().filter(|x| *x < 1 << 31) {
                let upper = (x * u64::from(factor)) >> 32;
                assert!(upper + x <= u64::from(u32::MAX));
                assert_eq!((upper + x) >> shift, x / by, "{x} / {by}");
            }
        }
    }

    #[test]
    fn what_lies_in_a_row_is_walked_in_packs() {
        let row = |address| operand(address, 4, &[12, 4, 1]);
        let variant = |operands: &[Operand]| plan(&[2, 3, 4], operands, 4, 256).variant;
        assert_eq!(variant(&[row(256), row(512)]), Variant::Contiguous { n: 24, head: 0 });
        assert_eq!(variant(&[row(260), row(516)]), Variant::Contiguous { n: 24, head: 3 });
        // Different misalignments: no common head.
        assert!(matches!(variant(&[row(260), row(512)]), Variant::Scalar(dims) if dims.rank == 1));
        // A cast from bytes to floats: 4 elements per vector.
        assert_eq!(variant(&[row(256), operand(516, 1, &[12, 4, 1])]), Variant::Contiguous { n: 24, head: 0 });
        // Operands transposed alike are contiguous too.
        let transposed = operand(256, 4, &[1, 2, 6]);
        assert_eq!(variant(&[transposed, transposed]), Variant::Contiguous { n: 24, head: 0 });
    }

    #[test]
    fn rows_with_strides_are_walked_in_packs_where_they_fit() {
        let out = operand(256, 4, &[8, 1]);
        let variant = |input: Operand| plan(&[3, 8], &[out, input], 4, 256).variant;
        assert!(
            matches!(variant(operand(256, 4, &[12, 1])), Variant::Rows(dims) if dims.shape[..2] == [2, 3] && dims.strides[1][..2] == [4, 12])
        );
        assert!(matches!(variant(operand(256, 4, &[0, 1])), Variant::Rows(_)));
        assert!(matches!(variant(operand(256, 4, &[1, 0])), Variant::Rows(dims) if dims.strides[1][..2] == [0, 1]));
        assert!(matches!(variant(operand(256, 4, &[0, 0])), Variant::Rows(dims) if dims.rank == 1));
        for input in [operand(256, 4, &[9, 1]), operand(260, 4, &[12, 1]), operand(256, 4, &[1, 3])] {
            assert!(matches!(variant(input), Variant::Scalar(_)), "{input:?}");
        }
    }

    #[test]
    fn places_beyond_32_bits_are_counted_in_64() {
        let far = operand(256, 1, &[1 << 31, 1]);
        let near = operand(256, 1, &[16, 1]);
        assert!(matches!(plan(&[2, 16], &[near, far], 4, 256).variant, Variant::Scalar64(_)));
        assert!(matches!(
            plan(&[1 << 16, 1 << 15], &[operand(256, 1, &[1 << 15, 1]), operand(256, 1, &[0, 0])], 4, 256).variant,
            Variant::Scalar64(_)
        ));
        let many = plan(&[1 << 40], &[operand(256, 1, &[1]), operand(256, 1, &[1])], 4, 256);
        assert_eq!((many.variant, many.launch.grid[0]), (Variant::Contiguous { n: 1 << 40, head: 0 }, 1 << 22));
    }
}
