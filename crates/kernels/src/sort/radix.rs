//! Radix sort of rows that exceed shared memory.

use warpwave_gpu::{Arg, Buffer, Launch, Stream};

use super::{Order, Rows, blocks};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::{Kernels, launch_error};
use crate::program::{Program, SourceFile, source_file};

static RADIX: SourceFile = source_file!("sort/radix.cu", &["_count", "_pass"]);

const THREADS: u32 = 384;
/// Bits and values of a digit.
const BITS: u32 = 8;
const DIGITS: usize = 1 << BITS;
/// Blocks that count digits: enough for every GPU, few enough that adding up their counts takes no time.
const COUNTING: usize = 1024;

/// Elements per thread: as many as a thread has registers for where two blocks are resident.
fn items(dtype: DType) -> u32 {
    match dtype.size() {
        8 => 10,
        _ if dtype.is_integer() => 16,
        _ => 20,
    }
}

pub(super) fn program(dtype: DType) -> Program {
    let constants = [("THREADS", THREADS), ("ITEMS", items(dtype)), ("BITS", BITS)];
    Program::new(&RADIX, "radix", &[dtype.name()], &constants)
}

/// Elements and their original indices, between two passes.
struct Moved {
    elements: Buffer<u8>,
    at: Buffer<u32>,
}

fn args(moved: Option<&Moved>) -> [Arg<'_>; 2] {
    moved.map_or([Arg::from(0u64); 2], |moved| [Arg::from(&moved.elements), Arg::from(&moved.at)])
}

impl Kernels {
    /// Sorts rows of any length and writes the first `order.keep` elements of each.
    ///
    /// Takes scratch memory of two elements and two indices per element, of one each for 16-bit types, of none for 8-bit types.
    pub(super) fn radix(&self, stream: &Stream, rows: &Rows<'_>) -> Result<()> {
        let (dtype, n, failed) = (rows.x.dtype(), rows.order.n as usize, || launch_error(rows.op));
        let (passes, tile) = (dtype.size(), (THREADS * items(dtype)) as usize);
        let tiles = n.div_ceil(tile);
        if rows.rows * tiles >= 1 << 31 {
            let reason = format!("{} rows of {n} columns exceed the limit of 2^31 tiles of {tile} elements", rows.rows);
            return Err(Error::BadArgument { op: rows.op.to_owned(), reason });
        }
        let kernels = self.load(&program(dtype))?;
        // Counts of all passes, then each pass's next tile.
        let counted = rows.rows * passes * DIGITS;
        let mut counts = stream.alloc_zeroed::<u32>(counted + passes).map_err(failed())?;
        let part = (rows.rows * tiles / COUNTING).clamp(1, 16) * tile;
        let parts = n.div_ceil(part);
        let order = Order { chunks: parts as u32, ..rows.order };
        let arguments = (rows.x.start(), &mut counts, Arg::value(&order), Arg::value(&rows.dims), part as u64);
        // SAFETY: the kernel was compiled for this type and takes these arguments; the view was checked against its memory, and there are
        // counts for every row and pass.
        unsafe { kernels[0].launch(stream, blocks(rows.rows * parts, THREADS), arguments) }.map_err(failed())?;

        let mut words = stream.alloc_zeroed::<u64>(rows.rows * tiles * DIGITS).map_err(failed())?;
        let order = Order { chunks: tiles as u32, ..rows.order };
        let launch: Launch = blocks(rows.rows * tiles, THREADS).shared((tile * dtype.size().max(4)) as u32);
        let [values, indices] = [rows.values, rows.indices].map(|view| view.map_or(Arg::from(0u64), |view| view.start().into()));
        let payload = if rows.indices.is_some() { rows.rows * n } else { 0 };
        let (mut from, mut spare) = (None::<Moved>, None::<Moved>);
        for pass in 0..passes {
            let to = match spare.take() {
                _ if pass + 1 == passes => None,
                Some(moved) => Some(moved),
                None => {
                    let elements = stream.alloc(rows.rows * n * dtype.size()).map_err(failed())?;
                    Some(Moved { elements, at: stream.alloc(payload).map_err(failed())? })
                }
            };
            let ([from_elements, from_at], [to_elements, to_at]) = (args(from.as_ref()), args(to.as_ref()));
            let next = counts.slice(counted + pass..).map_err(failed())?;
            let arguments = [
                rows.x.start().into(),
                values,
                indices,
                from_elements,
                from_at,
                to_elements,
                to_at,
                Arg::from(&mut words),
                Arg::from(&counts),
                next.into(),
                Arg::value(&order),
                Arg::value(&rows.dims),
                Arg::from(pass as u32),
            ];
            // SAFETY: as above; buffers between passes hold all rows, there are words for each digit of each tile, written indices are valid
            // for their row, and a pass writes each position once.
            unsafe { kernels[1].launch(stream, launch, &arguments[..]) }.map_err(failed())?;
            (spare, from) = (from, to);
        }
        Ok(())
    }
}
