//! The kernels of one element and operation.

use std::sync::Arc;

use warpwave_gpu::{Arg, Args, Device, DevicePtr, Kernel, Launch, Stream};
use warpwave_jit::{Jit, JitError, KernelSource};

use super::{Error, Result};
use crate::element::{Op, Repr};
use crate::schedule::Take;

/// Buffers that [`Kernels::combine_all`] takes at most.
pub const PEERS: usize = 8;

/// Threads of a block.
const BLOCK: u32 = 256;
/// Blocks for each compute unit: enough to keep its memory busy.
const BLOCKS_PER_UNIT: u32 = 8;
/// Bytes that a thread reads at once.
const UNIT: usize = 16;

/// The compiled operation of one element and operation on a device.
pub struct Kernels {
    repr: Repr,
    combine: Kernel,
    combine_all: Kernel,
    /// A copy is this kernel's work where there is padding to leave alone.
    store: Option<Kernel>,
}

impl Kernels {
    pub(super) fn load(device: &Device, jit: &Jit, repr: Repr, op: Op) -> Result<Arc<Kernels>> {
        let failed = |reason: JitError| Error::Kernel { repr, op, device: device.name().to_owned(), reason: Arc::new(reason) };
        let make = || -> Result<Kernels, JitError> {
            let module = jit.load(device, &source(repr, op))?;
            Ok(Kernels {
                repr,
                combine: module.kernel("combine")?,
                combine_all: module.kernel("combine_all")?,
                store: if repr.has_padding() { Some(module.kernel("store")?) } else { None },
            })
        };
        make().map(Arc::new).map_err(failed)
    }

    /// Queues the combination of `n` elements at `other` into those at `own`.
    ///
    /// # Safety
    /// Both must be device memory of `n` elements each that do not overlap and live until the work is done.
    pub(super) unsafe fn combine(&self, stream: &Stream, own: DevicePtr, other: DevicePtr, n: usize, take: Take) -> Result<()> {
        let before = match (take, &self.store) {
            (Take::Before, _) => 1i32,
            (Take::After, _) => 0,
            // SAFETY: the caller vouches for both.
            (Take::Store, None) => return Ok(unsafe { stream.copy_raw(other, own, n * self.repr.size()) }?),
            // SAFETY: the parameters are these.
            (Take::Store, Some(store)) => return unsafe { self.launch(store, stream, &[own, other], n, (own, other, n as u64)) },
        };
        // SAFETY: the parameters are these.
        unsafe { self.launch(&self.combine, stream, &[own, other], n, (own, other, n as u64, before)) }
    }

    /// Queues `out = ((p0 op p1) op p2) …`.
    ///
    /// # Safety
    /// As [`Kernels::combine`], but `out` may be one of the peers; there must be 1 to [`PEERS`] of them.
    pub(super) unsafe fn combine_all(&self, stream: &Stream, out: DevicePtr, peers: &[DevicePtr], n: usize) -> Result<()> {
        assert!((1..=PEERS).contains(&peers.len()), "{} peers", peers.len());
        // As the struct of the kernel: the addresses, then their number.
        let mut by_value = [0u64; PEERS + 1];
        by_value[..peers.len()].copy_from_slice(peers);
        by_value[PEERS] = peers.len() as u64;
        let mut addresses = by_value;
        addresses[peers.len()] = out;
        let args = (Arg::from(out), Arg::value(&by_value), Arg::from(n as u64));
        // SAFETY: the parameters are these.
        unsafe { self.launch(&self.combine_all, stream, &addresses[..=peers.len()], n, args) }
    }

    /// # Safety
    /// The arguments must be the kernel's parameters, and hold `n` elements at each address.
    unsafe fn launch<'a>(&self, kernel: &Kernel, stream: &Stream, at: &[DevicePtr], n: usize, args: impl Args<'a>) -> Result<()> {
        let repr = self.repr;
        if let Some(address) = at.iter().copied().find(|address| address % alignment(repr) != 0) {
            return Err(Error::Misaligned { address, repr });
        }
        if n == 0 {
            return Ok(());
        }
        let Launch { grid: [blocks, ..], .. } = Launch::for_elements((n * repr.size()).div_ceil(UNIT), BLOCK);
        let most = kernel.device().info().compute_units.max(1) * BLOCKS_PER_UNIT;
        // SAFETY: the caller vouches for the arguments; the kernel walks `n` elements, whatever the grid.
        Ok(unsafe { kernel.launch(stream, Launch::new([blocks.min(most), 1, 1], [BLOCK, 1, 1]), args) }?)
    }
}

/// What an element's address must be a multiple of.
pub fn alignment(repr: Repr) -> u64 {
    match repr {
        Repr::I8 | Repr::U8 => 1,
        Repr::I16 | Repr::U16 | Repr::F16 | Repr::Bf16 | Repr::Complex4 => 2,
        Repr::I32 | Repr::U32 | Repr::F32 | Repr::Complex8 | Repr::FloatInt | Repr::IntInt | Repr::ShortInt | Repr::FloatFloat => 4,
        Repr::I64 | Repr::U64 | Repr::F64 | Repr::Complex16 | Repr::DoubleInt | Repr::LongInt | Repr::DoubleDouble => 8,
    }
}

/// The program of one element and operation.
fn source(repr: Repr, op: Op) -> KernelSource {
    let name = |prefix: &str, value: &dyn std::fmt::Debug| format!("{prefix}_{value:?}").to_uppercase();
    let text = KernelSource::from_text("warpwave-reduce.cu", include_str!("reduce.cu"));
    let text = text.unwrap_or_else(|error| unreachable!("a text without includes: {error}"));
    text.define(name("ELEMENT", &repr), "1").define(name("OP", &op), "1")
}
