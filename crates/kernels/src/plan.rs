//! How an operation goes over its operands: which kernel, in what shape.

use bytemuck::{Pod, Zeroable};
use warpwave_gpu::Launch;

use crate::layout::MOST_DIMS;
use crate::tuning::Knob;

/// Operands that a kernel has at most, the result first.
pub(crate) const MOST_OPERANDS: usize = 4;

/// Threads of a block that turns tiles.
pub(crate) const TURNING: u32 = 256;
/// Blocks of a launch: beyond it each does more.
const MOST_BLOCKS: u64 = 1 << 22;
/// Bytes that a thread reads or writes at once.
pub(crate) const PACK: usize = 16;

/// What says how many packs a thread of a function that costs little has under way at once.
pub(crate) fn unroll(inputs: usize) -> Knob {
    match inputs {
        0 => Knob::UnrollFill,
        1 => Knob::UnrollOne,
        _ => Knob::UnrollMany,
    }
}

/// An operand: its first element's address, the bytes of an element, and the strides of the shape's dimensions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Operand {
    pub address: u64,
    pub size: usize,
    pub strides: [usize; MOST_DIMS],
}

/// As the struct of the kernels: the innermost dimension first.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Dims {
    n: u64,
    rank: u32,
    padding: u32,
    shape: [u64; MOST_DIMS],
    magic: [u32; MOST_DIMS],
    shift: [u32; MOST_DIMS],
    strides: [[u64; MOST_DIMS]; MOST_OPERANDS],
}

impl Dims {
    /// The number of elements.
    pub fn n(&self) -> u64 {
        self.n
    }
}

/// Which kernel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Way {
    /// All lie in a row: so many elements, the first of them before an aligned address.
    Vectors { n: u64, head: u64 },
    /// The innermost dimension lies in rows that packs fit into.
    Rows(Dims),
    /// Anything, one element at a time.
    Single(Dims),
    /// The same beyond 32 bits.
    Single64(Dims),
}

/// A kernel and the shape of its launch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Plan {
    pub way: Way,
    pub launch: Launch,
}

/// The plan for operands of one shape, the result first, with at least one element.
pub(crate) fn plan(shape: &[usize], operands: &[Operand], unroll: u32, block: u32) -> Plan {
    let dims = merged(shape, operands);
    let width = PACK / operands.iter().map(|operand| operand.size).max().unwrap_or(PACK);
    let n: u64 = dims.iter().map(|dim| dim.size as u64).product();
    if let Some(head) = head(&dims, operands, width) {
        let packs = (n - head) / width as u64;
        return Plan { way: Way::Vectors { n, head }, launch: launch(packs.div_ceil(u64::from(unroll)), block) };
    }
    let small = is_small(&dims);
    let packs = if small { packed(&dims, operands, width) } else { None };
    let way = match &packs {
        Some(packs) => Way::Rows(laid_out(packs)),
        None if small => Way::Single(laid_out(&dims)),
        None => Way::Single64(laid_out(&dims)),
    };
    Plan { way, launch: launch(if packs.is_some() { n / width as u64 } else { n }, block) }
}

/// Whether 32 bits count the elements, and each one's place.
pub(crate) fn is_small(dims: &[Dim]) -> bool {
    let last = |k: usize| dims.iter().map(|dim| (dim.size as u64 - 1) * dim.strides[k] as u64).sum::<u64>();
    dims.iter().map(|dim| dim.size as u64).product::<u64>() < 1 << 31 && (0..MOST_OPERANDS).all(|k| last(k) < 1 << 31)
}

pub(crate) fn launch(threads: u64, block: u32) -> Launch {
    let blocks = threads.div_ceil(u64::from(block)).clamp(1, MOST_BLOCKS);
    Launch::new([blocks as u32, 1, 1], [block, 1, 1])
}

/// As the struct of the turning copy: dimension `a` lies in rows in the input, `b` in the result.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Turn {
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
    shape: [u64; MOST_DIMS - 2],
    in_strides: [u64; MOST_DIMS - 2],
    out_strides: [u64; MOST_DIMS - 2],
}

/// How to copy in tiles, if rows of the result are columns of the input and both are long enough to gain from it.
pub(crate) fn turned(shape: &[usize], operands: &[Operand]) -> Option<(Turn, Launch)> {
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
    let mut turn = Turn::zeroed();
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
    Some((turn, launch(turn.tiles * u64::from(TURNING), TURNING)))
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Dim {
    pub size: usize,
    pub strides: [usize; MOST_OPERANDS],
}

/// The dimensions, innermost first: in the order in which the result lies in memory, without those of one element, and with those
/// made one that every operand walks in one step.
pub(crate) fn merged(shape: &[usize], operands: &[Operand]) -> Vec<Dim> {
    let dim = |(d, size): (usize, &usize)| {
        let mut strides = [0; MOST_OPERANDS];
        operands.iter().enumerate().for_each(|(k, operand)| strides[k] = operand.strides[d]);
        Dim { size: *size, strides }
    };
    let mut dims: Vec<Dim> = shape.iter().enumerate().map(dim).filter(|dim| dim.size > 1).collect();
    dims.sort_by_key(|dim| dim.strides[0]);
    let mut result: Vec<Dim> = Vec::new();
    for dim in dims {
        match result.last_mut() {
            Some(inner) if (0..MOST_OPERANDS).all(|k| dim.strides[k] == inner.strides[k] * inner.size) => inner.size *= dim.size,
            _ => result.push(dim),
        }
    }
    if result.is_empty() {
        let mut strides = [0; MOST_OPERANDS];
        strides[..operands.len()].fill(1);
        result.push(Dim { size: 1, strides });
    }
    result
}

/// Elements before the first that is aligned in every operand, if all lie in a row and there is one.
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

/// The dimensions with the innermost in packs, if every operand has or repeats them there, aligned.
pub(crate) fn packed(dims: &[Dim], operands: &[Operand], width: usize) -> Option<Vec<Dim>> {
    let (inner, outer) = dims.split_first()?;
    let fits = |(k, operand): (usize, &Operand)| match inner.strides[k] {
        // The result is never repeated.
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

pub(crate) fn laid_out(dims: &[Dim]) -> Dims {
    let mut result = Dims::zeroed();
    result.n = dims.iter().map(|dim| dim.size as u64).product();
    result.rank = dims.len() as u32;
    for (d, dim) in dims.iter().enumerate() {
        result.shape[d] = dim.size as u64;
        (result.magic[d], result.shift[d]) = divisor(dim.size as u64);
        (0..MOST_OPERANDS).for_each(|k| result.strides[k][d] = dim.strides[k] as u64);
    }
    result
}

/// Factor and shift of `x / by = (upper half of x * factor + x) >> shift`, for `x` and `by` below 2³¹.
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
        let mut all = [0; MOST_DIMS];
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
        let way = |operands: &[Operand]| plan(&[2, 3, 4], operands, 4, 256).way;
        assert_eq!(way(&[row(256), row(512)]), Way::Vectors { n: 24, head: 0 });
        assert_eq!(way(&[row(260), row(516)]), Way::Vectors { n: 24, head: 3 });
        // A different phase in each: nothing to align.
        assert!(matches!(way(&[row(260), row(512)]), Way::Single(dims) if dims.rank == 1));
        // A cast of bytes to floats: 4 elements are a pack.
        assert_eq!(way(&[row(256), operand(516, 1, &[12, 4, 1])]), Way::Vectors { n: 24, head: 0 });
        // All transposed alike is a row too.
        let turned = operand(256, 4, &[1, 2, 6]);
        assert_eq!(way(&[turned, turned]), Way::Vectors { n: 24, head: 0 });
    }

    #[test]
    fn rows_with_strides_are_walked_in_packs_where_they_fit() {
        let out = operand(256, 4, &[8, 1]);
        let way = |input: Operand| plan(&[3, 8], &[out, input], 4, 256).way;
        assert!(matches!(way(operand(256, 4, &[12, 1])), Way::Rows(dims) if dims.shape[..2] == [2, 3] && dims.strides[1][..2] == [4, 12]));
        assert!(matches!(way(operand(256, 4, &[0, 1])), Way::Rows(_)));
        assert!(matches!(way(operand(256, 4, &[1, 0])), Way::Rows(dims) if dims.strides[1][..2] == [0, 1]));
        assert!(matches!(way(operand(256, 4, &[0, 0])), Way::Rows(dims) if dims.rank == 1));
        for input in [operand(256, 4, &[9, 1]), operand(260, 4, &[12, 1]), operand(256, 4, &[1, 3])] {
            assert!(matches!(way(input), Way::Single(_)), "{input:?}");
        }
    }

    #[test]
    fn places_beyond_32_bits_are_counted_in_64() {
        let far = operand(256, 1, &[1 << 31, 1]);
        let near = operand(256, 1, &[16, 1]);
        assert!(matches!(plan(&[2, 16], &[near, far], 4, 256).way, Way::Single64(_)));
        assert!(matches!(
            plan(&[1 << 16, 1 << 15], &[operand(256, 1, &[1 << 15, 1]), operand(256, 1, &[0, 0])], 4, 256).way,
            Way::Single64(_)
        ));
        let many = plan(&[1 << 40], &[operand(256, 1, &[1]), operand(256, 1, &[1])], 4, 256);
        assert_eq!((many.way, many.launch.grid[0]), (Way::Vectors { n: 1 << 40, head: 0 }, 1 << 22));
    }
}
