//! Ranks of one node that read each other's GPU memory.
//!
//! Each rank has two slots of device memory which the others have opened. A chunk is copied into a slot, the ranks meet, and then a
//! kernel on each rank combines all ranks' slots in the order of ranks: once for all elements, or with many ranks each for its part,
//! which the others then fetch. Slots take turns: who fills one again has met all ranks since they last read it. In the end the ranks
//! meet once more, so that nobody reads another's slots once its call has returned.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use warpwave_gpu::{Buffer, Device, DevicePtr, IpcHandle, IpcMemory};

use crate::Failure;
use crate::abi::Mpi;
use crate::comm::{Comm, lock};
use crate::element::Repr;
use crate::gpu::{self, DeviceContext, Kernels, Lane, PEERS};
use crate::schedule::part;
use crate::wire::Wire;

/// Bytes of a slot.
const SLOT: usize = 16 << 20;
/// Up to this many bytes every rank combines everything itself, which saves a meeting.
const ALL_BY_EACH: usize = 1 << 20;
/// Up to this many ranks the meeting costs more than what each rank reads in excess.
const FEW: usize = 4;

/// A communicator whose ranks can reach each other's slots.
pub struct Ipc {
    context: Arc<DeviceContext>,
    /// The others' slots by rank; `None` for this rank's own.
    peers: Vec<Option<IpcMemory>>,
    slots: Slots,
    turn: AtomicUsize,
}

/// Slots of communicators that are gone. They are not freed: another rank may still have them open.
static SPARE: Mutex<Vec<(Buffer<u8>, IpcHandle)>> = Mutex::new(Vec::new());

/// This rank's slots, and what others open them by.
struct Slots(Option<(Buffer<u8>, IpcHandle)>);

impl Slots {
    fn new(device: &Device) -> gpu::Result<Slots> {
        let mut spare = lock(&SPARE);
        if let Some(index) = spare.iter().position(|(buffer, _)| buffer.device() == device) {
            return Ok(Slots(Some(spare.swap_remove(index))));
        }
        drop(spare);
        let _current = device.driver().keep_current()?;
        let buffer = Buffer::dedicated(device, 2 * SLOT)?;
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
    /// Opens the ranks' memory to each other. Collective; all ranks get it, or none.
    pub fn set_up(mpi: &'static Mpi, comm: &Comm, context: &Arc<DeviceContext>) -> Result<Option<Ipc>, Failure> {
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
        comm.gather(mpi, &slots.handle(), handles.as_flattened_mut())?;
        let open = |(rank, handle): (usize, [u8; 64])| {
            // SAFETY: slots are never freed, and the rank is another process.
            (rank != comm.rank).then(|| unsafe { context.device().open_ipc(IpcHandle(handle)) }).transpose()
        };
        let peers =
            context.visit().map_err(Failure::from).map(|_visit| handles.into_iter().enumerate().map(open).collect::<Result<Vec<_>, _>>());
        let peers = peers.ok().and_then(Result::ok);
        if comm.any(mpi, peers.is_none())? {
            return Ok(None);
        }
        Ok(peers.map(|peers| Ipc { context: context.clone(), peers, slots, turn: AtomicUsize::new(0) }))
    }

    /// The device it was set up for.
    pub fn device(&self) -> &Device {
        self.context.device()
    }

    /// The address of a rank's memory in slot `slot`.
    fn slot_of(&self, rank: usize, slot: usize) -> DevicePtr {
        let base = self.peers[rank].as_ref().map_or_else(|| self.slots.address(), IpcMemory::device_ptr);
        base + (slot * SLOT) as DevicePtr
    }

    /// Combines all ranks' elements at `origin` into `own`.
    ///
    /// # Safety
    /// Both are memory of this device with `count` elements, apart or the same.
    pub unsafe fn run(
        &self,
        (wire, rank): (Wire, usize),
        (repr, kernels): (Repr, &Kernels),
        (own, origin, count): (DevicePtr, DevicePtr, usize),
    ) -> Result<(), Failure> {
        let visit = self.context.visit()?;
        let lane = visit.lane()?;
        let (size, ranks) = (repr.size(), self.peers.len());
        let chunk = SLOT / size;
        for start in (0..count).step_by(chunk) {
            let elements = chunk.min(count - start);
            let (slot, at) = (self.turn.fetch_add(1, Ordering::Relaxed) % 2, (start * size) as DevicePtr);
            // SAFETY: the caller's promise; a slot holds a chunk, and nobody reads this rank's now.
            unsafe { lane.copy(self.slot_of(rank, slot), origin + at, elements * size) }?;
            lane.synchronize()?;
            wire.meet()?;
            let fold = |out: DevicePtr, range: Range<usize>| self.fold(&lane, (repr, kernels), out, slot, range);
            if ranks <= FEW || elements * size <= ALL_BY_EACH {
                fold(own + at, 0..elements)?;
            } else {
                // Into the program's buffer, whose elements are in the slot already, and from there to the slot for all.
                let mine = part(&(0..elements), ranks, rank);
                let (offset, bytes) = ((mine.start * size) as DevicePtr, mine.len() * size);
                fold(own + at + offset, mine)?;
                // SAFETY: the caller's promise; nobody but this rank reads this part of its slot before the ranks have met.
                unsafe { lane.copy(self.slot_of(rank, slot) + offset, own + at + offset, bytes) }?;
                lane.synchronize()?;
                wire.meet()?;
                for peer in (0..ranks).filter(|peer| *peer != rank) {
                    let theirs = part(&(0..elements), ranks, peer);
                    let offset = (theirs.start * size) as DevicePtr;
                    // SAFETY: the caller's promise; the rank has finished its part.
                    unsafe {
                        lane.combine(
                            kernels,
                            own + at + offset,
                            self.slot_of(peer, slot) + offset,
                            theirs.len(),
                            crate::schedule::Take::Store,
                        )
                    }?;
                }
            }
            lane.synchronize()?;
        }
        wire.meet()
    }

    /// Combines a range of all ranks' slots, in the order of ranks.
    fn fold(&self, lane: &Lane, (repr, kernels): (Repr, &Kernels), out: DevicePtr, slot: usize, range: Range<usize>) -> gpu::Result<()> {
        let offset = (range.start * repr.size()) as DevicePtr;
        let all: Vec<DevicePtr> = (0..self.peers.len()).map(|rank| self.slot_of(rank, slot) + offset).collect();
        let (first, rest) = all.split_at(all.len().min(PEERS));
        // SAFETY: all slots hold the range and stay as they are; `out` is none of them.
        unsafe {
            lane.combine_all(kernels, out, first, range.len())?;
            for more in rest.chunks(PEERS - 1) {
                lane.combine_all(kernels, out, &[&[out], more].concat(), range.len())?;
            }
        }
        Ok(())
    }
}
