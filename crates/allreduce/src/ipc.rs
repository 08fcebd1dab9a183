//! Allreduce within a node through peer access to GPU memory (CUDA or HIP IPC).
//!
//! Each rank exports two slots of device memory, which the other ranks map. A chunk is copied into a slot, a barrier follows, and then a
//! kernel on each rank reduces all ranks' slots in rank order: either all elements (one stage), or, with many ranks, one block per rank
//! that the others then read (two stages). The slots alternate, so that a slot is refilled only after a barrier that follows its last
//! read. A final barrier ensures that no rank reads another's slots after that rank's call has returned.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use warpwave_gpu::{Buffer, Device, DevicePtr, IpcHandle, IpcMemory};

use crate::Error;
use crate::abi::Mpi;
use crate::comm::{Comm, lock};
use crate::datatype::Repr;
use crate::gpu::{self, DeviceContext, Kernels, MAX_PEERS, PooledStream};
use crate::schedule::{RecvAction, block};
use crate::transport::Transport;

/// Bytes per slot.
const SLOT_BYTES: usize = 16 << 20;
/// Chunks up to this size use one stage, which saves a barrier.
const ONE_STAGE_MAX_BYTES: usize = 1 << 20;
/// Up to this many ranks one stage is faster: the barrier costs more than the redundant reads.
const ONE_STAGE_MAX_RANKS: usize = 4;

/// The mapped slots of all ranks of a communicator.
pub struct Ipc {
    context: Arc<DeviceContext>,
    /// The other ranks' slots; `None` at this rank's index.
    peers: Vec<Option<IpcMemory>>,
    slots: Slots,
    next_slot: AtomicUsize,
}

/// Slots of freed communicators. They are reused, never freed: another rank may still map them.
static SPARE: Mutex<Vec<(Buffer<u8>, IpcHandle)>> = Mutex::new(Vec::new());

/// This rank's slots and their IPC handle.
struct Slots(Option<(Buffer<u8>, IpcHandle)>);

impl Slots {
    fn new(device: &Device) -> gpu::Result<Slots> {
        let mut spare = lock(&SPARE);
        if let Some(index) = spare.iter().position(|(buffer, _)| buffer.device() == device) {
            return Ok(Slots(Some(spare.swap_remove(index))));
        }
        drop(spare);
        let _current = device.driver().keep_current()?;
        let buffer = Buffer::dedicated(device, 2 * SLOT_BYTES)?;
        let handle = buffer.ipc_handle()?;
        Ok(Slots(Some((buffer, handle))))
    }

    fn address(&self) -> DevicePtr {
        self.0.as_ref().map_or(0, |(buffer, _)| buffer.device_ptr())
    }

    fn handle(&self) -> [u8; 64] {
        self.0.as_ref().map_or([0; 64], |(_, handle)| handle.0)
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        lock(&SPARE).extend(self.0.take());
    }
}

impl Ipc {
    /// Maps the slots of all ranks. Collective; succeeds on all ranks or on none (`None`).
    pub fn set_up(mpi: &'static Mpi, comm: &Comm, context: &Arc<DeviceContext>) -> Result<Option<Ipc>, Error> {
        let nodes = comm.nodes(mpi)?;
        if nodes.iter().any(|node| *node != nodes[0]) {
            return Ok(None);
        }
        let mine = Slots::new(context.device());
        if comm.any(mpi, mine.is_err())? {
            return Ok(None);
        }
        let Ok(slots) = mine else { return Ok(None) };
        let mut handles = vec![[0u8; 64]; comm.ranks];
        comm.allgather(mpi, &slots.handle(), handles.as_flattened_mut())?;
        let open = |(rank, handle): (usize, [u8; 64])| {
            // SAFETY: slots are never freed, and the rank is another process.
            (rank != comm.rank).then(|| unsafe { context.device().open_ipc(IpcHandle(handle)) }).transpose()
        };
        let peers =
            context.enter().map_err(Error::from).map(|_guard| handles.into_iter().enumerate().map(open).collect::<Result<Vec<_>, _>>());
        let peers = peers.ok().and_then(Result::ok);
        if comm.any(mpi, peers.is_none())? {
            return Ok(None);
        }
        Ok(peers.map(|peers| Ipc { context: context.clone(), peers, slots, next_slot: AtomicUsize::new(0) }))
    }

    /// Returns the device that it was set up for.
    pub fn device(&self) -> &Device {
        self.context.device()
    }

    /// Returns the address of a rank's slot.
    fn slot_address(&self, rank: usize, slot: usize) -> DevicePtr {
        let base = self.peers[rank].as_ref().map_or_else(|| self.slots.address(), IpcMemory::device_ptr);
        base + (slot * SLOT_BYTES) as DevicePtr
    }

    /// Reduces all ranks' elements at `send` into `recv`.
    ///
    /// # Safety
    /// Both must be memory of this device with `count` elements, identical or disjoint.
    pub unsafe fn run(
        &self,
        (transport, rank): (Transport, usize),
        (repr, kernels): (Repr, &Kernels),
        (recv, send, count): (DevicePtr, DevicePtr, usize),
    ) -> Result<(), Error> {
        let guard = self.context.enter()?;
        let stream = guard.stream()?;
        let (size, ranks) = (repr.size(), self.peers.len());
        let chunk = SLOT_BYTES / size;
        for start in (0..count).step_by(chunk) {
            let elements = chunk.min(count - start);
            let (slot, at) = (self.next_slot.fetch_add(1, Ordering::Relaxed) % 2, (start * size) as DevicePtr);
            // SAFETY: guaranteed by the caller; a slot holds a chunk, and no rank reads this slot now.
            unsafe { stream.copy(self.slot_address(rank, slot), send + at, elements * size) }?;
            stream.synchronize()?;
            transport.barrier()?;
            let reduce = |out: DevicePtr, range: Range<usize>| self.reduce_slots(&stream, (repr, kernels), out, slot, range);
            if ranks <= ONE_STAGE_MAX_RANKS || elements * size <= ONE_STAGE_MAX_BYTES {
                reduce(recv + at, 0..elements)?;
            } else {
                // Into the receive buffer, whose elements are in the slot already, and from there to the slot for the other ranks.
                let mine = block(&(0..elements), ranks, rank);
                let (offset, bytes) = ((mine.start * size) as DevicePtr, mine.len() * size);
                reduce(recv + at + offset, mine)?;
                // SAFETY: guaranteed by the caller; no other rank reads this block of the slot before the barrier.
                unsafe { stream.copy(self.slot_address(rank, slot) + offset, recv + at + offset, bytes) }?;
                stream.synchronize()?;
                transport.barrier()?;
                for peer in (0..ranks).filter(|peer| *peer != rank) {
                    let theirs = block(&(0..elements), ranks, peer);
                    let offset = (theirs.start * size) as DevicePtr;
                    let (to, from) = (recv + at + offset, self.slot_address(peer, slot) + offset);
                    // SAFETY: guaranteed by the caller; the rank has finished its block.
                    unsafe { stream.apply(kernels, to, from, theirs.len(), RecvAction::Replace) }?;
                }
            }
            stream.synchronize()?;
        }
        transport.barrier()
    }

    /// Reduces a range of all ranks' slots, in rank order.
    fn reduce_slots(
        &self,
        stream: &PooledStream,
        (repr, kernels): (Repr, &Kernels),
        out: DevicePtr,
        slot: usize,
        range: Range<usize>,
    ) -> gpu::Result<()> {
        let offset = (range.start * repr.size()) as DevicePtr;
        let all: Vec<DevicePtr> = (0..self.peers.len()).map(|rank| self.slot_address(rank, slot) + offset).collect();
        let (first, rest) = all.split_at(all.len().min(MAX_PEERS));
        // SAFETY: all slots hold the range and are unchanged meanwhile; `out` is not a slot.
        unsafe {
            stream.reduce_peers(kernels, out, first, range.len())?;
            for more in rest.chunks(MAX_PEERS - 1) {
                stream.reduce_peers(kernels, out, &[&[out], more].concat(), range.len())?;
            }
        }
        Ok(())
    }
}
