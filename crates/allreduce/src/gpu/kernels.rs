//! The reduction kernels of one datatype and operator.

use std::sync::Arc;

use warpwave_gpu::{Arg, Args, Device, DevicePtr, Kernel, Launch, Stream};
use warpwave_jit::{Jit, JitError, KernelSource};

use super::{Error, Result};
use crate::datatype::{Op, Repr};
use crate::schedule::RecvAction;

/// Maximum number of buffers of [`super::PooledStream::reduce_peers`].
pub const MAX_PEERS: usize = 8;

/// Threads per block.
const BLOCK: u32 = 256;
/// Blocks per compute unit: enough to saturate memory bandwidth.
const BLOCKS_PER_UNIT: u32 = 8;
/// Bytes of a vector load.
const VECTOR: usize = 16;

/// The compiled kernels of one datatype and operator on a device.
pub struct Kernels {
    repr: Repr,
    reduce: Kernel,
    reduce_peers: Kernel,
    /// Copies elements without their padding; `None` for datatypes without padding.
    copy_elements: Option<Kernel>,
}

impl Kernels {
    pub(super) fn load(device: &Device, jit: &Jit, repr: Repr, op: Op) -> Result<Arc<Kernels>> {
        let failed = |reason: JitError| Error::Kernel { repr, op, device: device.name().to_owned(), reason: Arc::new(reason) };
        let load = || -> Result<Kernels, JitError> {
            let module = jit.load(device, &source(repr, op))?;
            Ok(Kernels {
                repr,
                reduce: module.kernel("reduce")?,
                reduce_peers: module.kernel("reduce_peers")?,
                copy_elements: if repr.has_padding() { Some(module.kernel("copy_elements")?) } else { None },
            })
        };
        load().map(Arc::new).map_err(failed)
    }

    /// Enqueues the copy or reduction of `n` elements at `input` into those at `inout`.
    ///
    /// # Safety
    /// Both must be device memory of `n` elements, must not overlap, and must stay valid until the work has completed.
    pub(super) unsafe fn apply(&self, stream: &Stream, inout: DevicePtr, input: DevicePtr, n: usize, action: RecvAction) -> Result<()> {
        let input_first = match (action, &self.copy_elements) {
            (RecvAction::ReduceLeft, _) => 1i32,
            (RecvAction::ReduceRight, _) => 0,
            // SAFETY: guaranteed by the caller.
            (RecvAction::Replace, None) => return Ok(unsafe { stream.copy_raw(input, inout, n * self.repr.size()) }?),
            // SAFETY: the arguments match the kernel's parameters.
            (RecvAction::Replace, Some(copy)) => return unsafe { self.launch(copy, stream, &[inout, input], n, (inout, input, n as u64)) },
        };
        // SAFETY: the arguments match the kernel's parameters.
        unsafe { self.launch(&self.reduce, stream, &[inout, input], n, (inout, input, n as u64, input_first)) }
    }

    /// Enqueues `out = ((p0 op p1) op p2) …`.
    ///
    /// # Safety
    /// As [`Kernels::apply`], but `out` may be one of the 1 to [`MAX_PEERS`] peers.
    pub(super) unsafe fn reduce_peers(&self, stream: &Stream, out: DevicePtr, peers: &[DevicePtr], n: usize) -> Result<()> {
        assert!((1..=MAX_PEERS).contains(&peers.len()), "expected 1 to {MAX_PEERS} peers, got {}", peers.len());
        // Layout of the kernel's `Peers` struct: the addresses, then their number.
        let mut by_value = [0u64; MAX_PEERS + 1];
        by_value[..peers.len()].copy_from_slice(peers);
        by_value[MAX_PEERS] = peers.len() as u64;
        let mut addresses = by_value;
        addresses[peers.len()] = out;
        let args = (Arg::from(out), Arg::value(&by_value), Arg::from(n as u64));
        // SAFETY: the arguments match the kernel's parameters.
        unsafe { self.launch(&self.reduce_peers, stream, &addresses[..=peers.len()], n, args) }
    }

    /// # Safety
    /// The arguments must match the kernel's parameters, and each address must hold `n` elements.
    unsafe fn launch<'a>(&self, kernel: &Kernel, stream: &Stream, at: &[DevicePtr], n: usize, args: impl Args<'a>) -> Result<()> {
        let repr = self.repr;
        if let Some(address) = at.iter().copied().find(|address| address % alignment(repr) != 0) {
            return Err(Error::Misaligned { address, repr });
        }
        if n == 0 {
            return Ok(());
        }
        let Launch { grid: [blocks, ..], .. } = Launch::for_elements((n * repr.size()).div_ceil(VECTOR), BLOCK);
        let max_blocks = kernel.device().info().compute_units.max(1) * BLOCKS_PER_UNIT;
        // SAFETY: the caller guarantees the arguments; the kernel is a grid-stride loop over `n` elements.
        Ok(unsafe { kernel.launch(stream, Launch::new([blocks.min(max_blocks), 1, 1], [BLOCK, 1, 1]), args) }?)
    }
}

/// Returns the alignment in bytes that devices need for an element.
pub fn alignment(repr: Repr) -> u64 {
    match repr {
        Repr::I8 | Repr::U8 => 1,
        Repr::I16 | Repr::U16 | Repr::F16 | Repr::Bf16 | Repr::Complex4 => 2,
        Repr::I32 | Repr::U32 | Repr::F32 | Repr::Complex8 | Repr::FloatInt | Repr::IntInt | Repr::ShortInt | Repr::FloatFloat => 4,
        Repr::I64 | Repr::U64 | Repr::F64 | Repr::Complex16 | Repr::DoubleInt | Repr::LongInt | Repr::DoubleDouble => 8,
    }
}

/// Returns the source for one datatype and operator.
fn source(repr: Repr, op: Op) -> KernelSource {
    let name = |prefix: &str, value: &dyn std::fmt::Debug| format!("{prefix}_{value:?}").to_uppercase();
    let source = KernelSource::from_text("warpwave-reduce.cu", include_str!("reduce.cu"));
    let source = source.unwrap_or_else(|error| unreachable!("invalid built-in kernel source: {error}"));
    source.define(name("ELEMENT", &repr), "1").define(name("OP", &op), "1")
}
