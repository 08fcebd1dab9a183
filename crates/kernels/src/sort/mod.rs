//! Sorting rows, and their first k elements.

mod radix;
mod unique;

use bytemuck::{Pod, Zeroable};
use warpwave_gpu::{Arg, Buffer, Kernel, Launch, Stream};

use crate::dtype::DType;
use crate::elementwise::plan::{Dims, Operand, merged, to_dims};
use crate::error::{Error, Result};
use crate::kernels::{Kernels, check_no_overlap, check_same_dtype, dtype_error, launch_error, shape_error};
use crate::layout::MAX_DIMS;
use crate::program::{Program, SourceFile, source_file};
use crate::view::{View, ViewMut};

static ARGSORT: SourceFile = source_file!("sort/argsort.cu", &["_tile"]);
static TOPK: SourceFile = source_file!("sort/topk.cu", &["_chunk"]);
static SELECT: SourceFile = source_file!("sort/select.cu", &["_select"]);

/// A program by threads per block and elements per thread.
#[derive(Debug, Clone, Copy)]
struct Tile {
    threads: u32,
    items: u32,
    /// Bits per digit of the radix sort; 0 for the top-k kernel.
    bits: u32,
}

const fn tile(threads: u32, items: u32, bits: u32) -> Tile {
    Tile { threads, items, bits }
}

/// Ordered by size.
const SORTS: [Tile; 4] = [tile(64, 8, 8), tile(64, 16, 8), tile(256, 16, 8), tile(512, 16, 8)];
const FIRSTS: [Tile; 4] = [tile(64, 4, 0), tile(128, 8, 0), tile(256, 16, 0), tile(512, 8, 0)];

/// For k too large for `FIRSTS` and too small to sort everything.
fn selects(dtype: DType) -> [Tile; 3] {
    [256, 512, 1024].map(|threads| tile(threads, if dtype.size() == 8 { 8 } else { 16 }, 0))
}

fn select_program(tile: Tile, dtype: DType) -> Program {
    Program::new(&SELECT, "select", &[dtype.name()], &[("THREADS", tile.threads), ("ITEMS", tile.items)])
}

/// Returns the program that selects `k` of `n` before sorting, if that is worth a launch.
fn select_for(n: usize, k: usize, dtype: DType) -> Option<Tile> {
    let tiles = selects(dtype);
    // If one chunk is the whole row, `FIRSTS` find more of it.
    let few = if n > tiles[2].elements() { 128 } else { 256 };
    if k <= few || n < LONG || 4 * k > n {
        return None;
    }
    let tile = tiles.into_iter().find(|tile| n <= tile.elements()).unwrap_or(tiles[2]);
    (4 * k <= tile.elements()).then_some(tile)
}

/// Shorter rows are not worth a selection.
const LONG: usize = 2048;

/// Rows up to this length are sorted faster by comparing all pairs.
const SHORT: usize = 192;

impl Tile {
    fn elements(self) -> usize {
        (self.threads * self.items) as usize
    }

    /// Dynamic shared memory in bytes.
    fn shared(self, dtype: DType, wave: u32) -> usize {
        if self.bits == 0 {
            return 0;
        }
        let counts = (self.threads / wave) as usize * ((1 << self.bits) + 1);
        self.elements() * (key_size(dtype) + 2) + 4 * counts
    }

    fn program(self, dtype: DType) -> Program {
        let constants = [("THREADS", self.threads), ("ITEMS", self.items), ("BITS", self.bits)];
        match self.bits {
            0 => Program::new(&TOPK, "topk", &[dtype.name()], &constants[..2]),
            _ => Program::new(&ARGSORT, "argsort", &[dtype.name()], &constants),
        }
    }
}

/// Returns the program for the first `k` of rows of `n`: one for whole rows if there is, else one for the largest chunks. Small k use the
/// bound from the minima of thread groups, which must be more than k; otherwise all elements are sorted.
fn tile_for(n: usize, k: usize, fits: impl Fn(&Tile) -> bool) -> Option<Tile> {
    let finds = |tile: &Tile| {
        let threads = tile.threads as usize;
        (2 * k <= threads && 4 * k <= n) || n <= SHORT.min(2 * threads)
    };
    let firsts: Vec<Tile> = FIRSTS.into_iter().filter(finds).collect();
    let tiles = if firsts.is_empty() { SORTS.into_iter().filter(fits).collect() } else { firsts };
    tiles.iter().find(|tile| n <= tile.elements()).or_else(|| tiles.iter().rev().max_by_key(|tile| tile.elements())).copied()
}

/// Bytes of a sort key.
fn key_size(dtype: DType) -> usize {
    dtype.size().max(4)
}

/// Parameters of the kernels.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Order {
    n: u64,
    step: u64,
    value_stride: u64,
    index_stride: u64,
    next: u64,
    chunks: u32,
    keep: u32,
    largest: u32,
    wide: u32,
}

/// Keys and original indices, between two launches.
struct Pairs {
    keys: Buffer<u8>,
    at: Buffer<u32>,
}

fn args(pairs: Option<&Pairs>) -> [Arg<'_>; 2] {
    pairs.map_or([Arg::from(0u64); 2], |pairs| [Arg::from(&pairs.keys), Arg::from(&pairs.at)])
}

/// A checked call.
struct Rows<'a> {
    op: &'static str,
    x: View<'a>,
    values: Option<View<'a>>,
    indices: Option<View<'a>>,
    rows: usize,
    order: Order,
    dims: Dims,
}

impl Rows<'_> {
    fn alloc_pairs(&self, stream: &Stream, each: usize) -> Result<Pairs> {
        let n = self.rows * each;
        let keys = stream.alloc(n * key_size(self.x.dtype())).map_err(launch_error(self.op))?;
        Ok(Pairs { keys, at: stream.alloc(n).map_err(launch_error(self.op))? })
    }

    fn launch(
        &self,
        stream: &Stream,
        kernel: &Kernel,
        launch: Launch,
        order: Order,
        (from, to): (Option<&Pairs>, Option<&Pairs>),
    ) -> Result<()> {
        let ([from_keys, from_at], [to_keys, to_at]) = (args(from), args(to));
        let [values, indices] = [self.values, self.indices].map(|view| view.map_or(Arg::from(0u64), |view| view.start().into()));
        let args = (self.x.start(), values, indices, from_keys, from_at, to_keys, to_at, Arg::value(&order), Arg::value(&self.dims));
        // SAFETY: the kernel was compiled for this type and takes these arguments; all views were checked against their memory, buffers
        // between launches hold what is kept of each row, and written indices are valid for their row.
        unsafe { kernel.launch(stream, launch, args) }.map_err(launch_error(self.op))
    }
}

impl Kernels {
    /// Finds the largest or smallest elements of each row, in order, and their indices.
    ///
    /// Rows run along the last dimension; k is the size of the last dimension of `values` and `indices`. Indices are `u32` or `i64`.
    pub fn topk(&self, stream: &Stream, x: &View<'_>, largest: bool, values: &mut ViewMut<'_>, indices: &mut ViewMut<'_>) -> Result<()> {
        self.order(stream, "topk", *x, largest, Some(values.as_view()), Some(indices.as_view()))
    }

    /// Sorts each row, ascending or descending, and computes the index each element had, if `indices` are given.
    ///
    /// Rows run along the last dimension; indices are `u32` or `i64`. Scratch memory is as for [`Kernels::argsort`].
    pub fn sort(
        &self,
        stream: &Stream,
        x: &View<'_>,
        descending: bool,
        values: &mut ViewMut<'_>,
        indices: Option<&mut ViewMut<'_>>,
    ) -> Result<()> {
        let (values, indices) = (values.as_view(), indices.as_ref().map(|view| view.as_view()));
        self.order_all(stream, "sort", *x, descending, Some(values), indices)
    }

    /// Computes the indices that sort each row, ascending or descending.
    ///
    /// Rows run along the last dimension; indices are `u32` or `i64`. Rows that exceed shared memory (some thousands of elements) take
    /// scratch memory of up to two elements and two `u32` per element.
    pub fn argsort(&self, stream: &Stream, x: &View<'_>, descending: bool, indices: &mut ViewMut<'_>) -> Result<()> {
        self.order_all(stream, "argsort", *x, descending, None, Some(indices.as_view()))
    }

    /// Sorts all elements of each row of `x`.
    fn order_all(
        &self,
        stream: &Stream,
        op: &'static str,
        x: View<'_>,
        descending: bool,
        values: Option<View<'_>>,
        indices: Option<View<'_>>,
    ) -> Result<()> {
        let shape = x.layout().shape();
        for (what, view) in [("values", values), ("indices", indices)] {
            if let Some(view) = view.filter(|view| view.layout().shape() != shape) {
                return Err(shape_error(op, what, &view, format!("{shape:?}")));
            }
        }
        self.order(stream, op, x, descending, values, indices)
    }

    /// Sorts the first k elements of each row of `x`, k being the size of the last dimension of `values` and `indices`.
    pub(crate) fn order(
        &self,
        stream: &Stream,
        op: &'static str,
        x: View<'_>,
        largest: bool,
        values: Option<View<'_>>,
        indices: Option<View<'_>>,
    ) -> Result<()> {
        let named = [("values", values), ("indices", indices)].map(|(what, view)| view.map(|view| (what, view)));
        let outputs = named.into_iter().flatten();
        self.check_devices(op, stream, outputs.clone().chain([("input", x)]))?;
        if let Some(values) = values {
            check_same_dtype(op, "values", values, x.dtype())?;
        }
        if let Some(found) = indices.map(|indices| indices.dtype()).filter(|dtype| ![DType::U32, DType::I64].contains(dtype)) {
            return Err(dtype_error(op, "indices", found, "u32 or i64"));
        }
        let Some((n, outer)) = x.layout().shape().split_last() else {
            return Err(shape_error(op, "input", &x, "of at least one dimension"));
        };
        let Some((_, any)) = outputs.clone().next() else { return Ok(()) };
        let k = any.layout().shape().last().copied().unwrap_or(0);
        for (what, view) in outputs {
            let fits = view.layout().shape().split_last().is_some_and(|(last, others)| *last == k && k <= *n && others == outer);
            if !fits {
                return Err(shape_error(op, what, &view, format!("{:?} with a last dimension of at most {n}", x.layout().shape())));
            }
            check_no_overlap(op, "input", &x, &view)?;
        }
        if values.zip(indices).is_some_and(|(values, indices)| values.overlaps(&indices)) {
            return Err(Error::Overlap { op: op.to_owned(), what: "values overlap the indices".to_owned() });
        }
        let rows: usize = outer.iter().product();
        if rows * k == 0 {
            return Ok(());
        }
        if u32::try_from(*n).is_err() || rows >= 1 << 31 {
            let reason = format!("{rows} rows of {n} columns exceed the limit of 2^31 rows or 2^32 columns");
            return Err(Error::BadArgument { op: op.to_owned(), reason });
        }
        let step = |view: View<'_>| view.layout().strides()[outer.len()] as u64;
        let operand = |view: View<'_>| {
            let mut strides = [0; MAX_DIMS];
            strides[..outer.len()].copy_from_slice(&view.layout().strides()[..outer.len()]);
            Operand { address: view.address(), size: view.dtype().size(), strides }
        };
        let dims = to_dims(&merged(outer, &[x, values.unwrap_or(any), indices.unwrap_or(any)].map(operand)));
        let order = Order {
            n: *n as u64,
            step: step(x),
            value_stride: values.map_or(0, step),
            index_stride: indices.map_or(0, step),
            next: 0,
            chunks: 1,
            keep: k as u32,
            largest: largest.into(),
            wide: indices.is_some_and(|indices| indices.dtype() == DType::I64).into(),
        };
        self.in_order(stream, &Rows { op, x, values, indices, rows, order, dims }, k)
    }

    /// Selects first, if worthwhile; then sorts chunks of rows, and repeats with what was kept. Rows of which too much would be kept are
    /// sorted as a whole.
    fn in_order(&self, stream: &Stream, rows: &Rows<'_>, k: usize) -> Result<()> {
        let (dtype, info) = (rows.x.dtype(), self.device().info());
        let (mut n, mut from) = (rows.order.n as usize, None::<Pairs>);
        while let Some(tile) = select_for(n, k, dtype) {
            let kernels = self.load(&select_program(tile, dtype))?;
            let (size, chunks) = (tile.elements(), n.div_ceil(tile.elements()));
            let next = (chunks - 1) * k + k.min(n - (chunks - 1) * size);
            let order = Order { n: n as u64, next: next as u64, chunks: chunks as u32, keep: k as u32, ..rows.order };
            let kept = rows.alloc_pairs(stream, next)?;
            rows.launch(stream, &kernels[0], blocks(rows.rows * chunks, tile.threads), order, (from.as_ref(), Some(&kept)))?;
            (n, from) = (next, Some(kept));
        }
        loop {
            let fits = |tile: &Tile| tile.shared(dtype, info.wave_size) <= info.shared_per_block_max;
            let Some(tile) = tile_for(n, k, fits) else {
                let reason = format!("no kernel fits in {} bytes of shared memory per block", info.shared_per_block_max);
                return Err(Error::BadArgument { op: rows.op.to_owned(), reason });
            };
            let (size, chunks) = (tile.elements(), n.div_ceil(tile.elements()));
            if chunks > 1 && 2 * k > size {
                return self.radix(stream, rows);
            }
            let kernels = self.load(&tile.program(dtype))?;
            let shape = blocks(rows.rows * chunks, tile.threads).shared(tile.shared(dtype, info.wave_size) as u32);
            let next = (chunks - 1) * k + k.min(n - (chunks - 1) * size);
            let order = Order { n: n as u64, next: next as u64, chunks: chunks as u32, keep: k as u32, ..rows.order };
            if chunks == 1 {
                return rows.launch(stream, &kernels[0], shape, order, (from.as_ref(), None));
            }
            let kept = rows.alloc_pairs(stream, next)?;
            rows.launch(stream, &kernels[0], shape, order, (from.as_ref(), Some(&kept)))?;
            (n, from) = (next, Some(kept));
        }
    }
}

/// A grid that is too large is rejected by the launch.
fn blocks(count: usize, threads: u32) -> Launch {
    Launch::new([u32::try_from(count).unwrap_or(u32::MAX), 1, 1], [threads, 1, 1])
}

/// Lists the programs.
pub(crate) fn programs() -> Vec<Program> {
    let of = |dtype: DType| {
        let others = SORTS.into_iter().chain(FIRSTS).map(move |tile| tile.program(dtype));
        others.chain(selects(dtype).map(|tile| select_program(tile, dtype))).chain([radix::program(dtype), unique::program(dtype)])
    };
    DType::COMPUTE.into_iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_get_the_program_for_their_length() {
        let chosen = |n, k| tile_for(n, k, |_| true).map(|tile| (tile.threads, tile.items, tile.bits)).unwrap();
        assert_eq!(chosen(1, 1), (64, 4, 0));
        assert_eq!(chosen(128, 128), (64, 4, 0));
        assert_eq!(chosen(192, 192), (128, 8, 0));
        assert_eq!(chosen(256, 8), (64, 4, 0));
        assert_eq!(chosen(256, 256), (64, 8, 8));
        assert_eq!(chosen(1000, 64), (128, 8, 0));
        assert_eq!(chosen(1000, 65), (256, 16, 0));
        assert_eq!(chosen(1000, 256), (64, 16, 8));
        assert_eq!(chosen(151_936, 50), (256, 16, 0));
        assert_eq!(chosen(4096, 256), (512, 8, 0));
        assert_eq!(chosen(4096, 257), (256, 16, 8));
        assert_eq!(chosen(100_000, 100_000), (512, 16, 8));
        let selected = |n, k| select_for(n, k, DType::F32).map(Tile::elements);
        assert_eq!([(4096, 256), (1000, 250), (4096, 1025)].map(|(n, k)| selected(n, k)), [None; 3]);
        assert_eq!([(4096, 257), (151_936, 1024), (20_000, 129)].map(|(n, k)| selected(n, k)), [4096, 16_384, 16_384].map(Some));
        // With less shared memory, chunks are smaller.
        assert_eq!(tile_for(100_000, 100_000, |tile| tile.threads < 512).map(Tile::elements), Some(4096));
        // Repeated chunks shrink.
        assert!(FIRSTS.iter().all(|tile| tile.elements() >= 2 * tile.threads as usize));
    }
}
