//! The caching pool: freed device memory is kept and handed out again, in stream order.
//!
//! A block freed by its owner may still be in use by work queued on the owner's stream. Work queued later on that
//! same stream runs after it, so the block is ready for that stream at once, without an event. Other streams that
//! used the block are waited for through events, which are only looked at when memory is short.
//!
//! Sizes are rounded up to fine classes (an eighth of a power of two below 1 MiB, a 64th above), and a new block is
//! only asked of the driver after unused ones were given back as far as needed to hold no more than 4 % beyond the
//! most that was ever asked for at once. Power-of-two classes would waste a quarter of the card on average.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::device::Device;
use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::stream::Stream;
use crate::table::{DevicePtr, Failure, Handle, Table};
use crate::vendor::code;

/// The list of blocks that no queued work uses any more.
const ANY_STREAM: u64 = 0;
const SMALLEST: usize = 512;
const MEBIBYTE: usize = 1 << 20;
/// Unused memory kept in any case: below it, giving memory back saves nothing that matters.
const ALWAYS_KEPT: usize = 32 * MEBIBYTE;

/// The pool's figures, in bytes unless said otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Held from the driver: in use and pooled.
    pub allocated: usize,
    /// Blocks of live buffers.
    pub in_use: usize,
    /// What the live buffers asked for.
    pub requested: usize,
    /// Held, and not in use.
    pub pooled: usize,
    /// Allocations served without the driver.
    pub hits: u64,
    /// Allocations that went to the driver.
    pub misses: u64,
    /// The most that was in use at once.
    pub peak_in_use: usize,
    /// The most that was asked for at once.
    pub peak_requested: usize,
    /// The most that was held at once.
    pub peak_allocated: usize,
}

#[derive(Default)]
pub(crate) struct Pool(Mutex<State>);

#[derive(Default)]
struct State {
    /// By stream, then by size.
    ready: HashMap<u64, BTreeMap<usize, Vec<Free>>>,
    waiting: Vec<Waiting>,
    /// Freed while a stream that used them was being captured: an event recorded then would belong to the graph.
    parked: Vec<(Free, u64, Vec<Stream>)>,
    leaving: Leaving,
    cap: Option<usize>,
    clock: u64,
    stats: PoolStats,
}

#[derive(Debug, Clone, Copy)]
struct Free {
    ptr: DevicePtr,
    bytes: usize,
    /// When it was freed: the oldest goes first.
    freed: u64,
}

struct Waiting {
    blocks: Vec<Free>,
    events: Vec<Mark>,
    /// The stream the blocks are ready for once the events have happened.
    stream: u64,
}

/// An event that the pool owns. It holds its driver and not its device, or the device would never be dropped.
struct Mark {
    driver: Arc<Driver>,
    raw: Handle,
}

// SAFETY: an event handle may be used from any thread.
unsafe impl Send for Mark {}

impl Mark {
    /// The end of the work queued on a stream of `device` so far. Leaves `device` current.
    fn new(device: &Device, stream: Handle) -> Result<Mark, Failure> {
        const DISABLE_TIMING: u32 = 2;
        let table = device.0.activate()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the output outlives the call.
        unsafe { table.event_create(&mut raw, DISABLE_TIMING)? };
        let mark = Mark { driver: device.driver().clone(), raw };
        // SAFETY: both handles are live.
        unsafe { table.event_record(mark.raw, stream)? };
        Ok(mark)
    }

    fn is_done(&self) -> bool {
        // SAFETY: the handle is live.
        unsafe { self.driver.table.event_query(self.raw) }.is_ok()
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        // SAFETY: the handle is ours, and this is its last use.
        let _ = unsafe { self.driver.table.event_destroy(self.raw) };
    }
}

/// The block size for a request: never less than asked for, at most 1/64 more from 1 MiB on.
fn class(bytes: usize) -> usize {
    let steps = if bytes < MEBIBYTE { 8 } else { 64 };
    let granule = (bytes.checked_ilog2().map_or(0, |log| 1usize << log) / steps).max(SMALLEST);
    bytes.checked_next_multiple_of(granule).unwrap_or(bytes)
}

/// What the pool gives up. Freeing waits for the device, which may wait for a host function that frees a buffer; and dropping the
/// last handle of a stream comes back to the pool. So both happen when the lock is free.
#[derive(Default)]
struct Leaving {
    blocks: Vec<Free>,
    streams: Vec<Stream>,
}

impl Leaving {
    fn free(self, table: &Table) {
        for block in self.blocks {
            // SAFETY: the pool owned the block and forgot it. Both vendors wait for work that still uses it.
            if let Err(failure) = unsafe { table.mem_free(block.ptr) } {
                tracing::warn!(?failure, bytes = block.bytes, "freeing device memory failed");
            }
        }
    }
}

/// Unlocks, then lets go of what leaves.
fn leave(mut state: MutexGuard<'_, State>, table: &Table) {
    let leaving = std::mem::take(&mut state.leaving);
    drop(state);
    leaving.free(table);
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn stats(&self) -> PoolStats {
        self.lock().stats
    }

    pub fn set_cap(&self, cap: Option<usize>) {
        self.lock().cap = cap;
    }

    /// A block of at least `asked` bytes for work on `stream`; its address and size.
    pub fn take(&self, stream: &Stream, asked: usize) -> Result<(DevicePtr, usize)> {
        let device = stream.device();
        let table = device.activate()?;
        let mut state = self.lock();
        // A captured graph may run on any stream: inside a capture only blocks that nothing uses will do.
        let lists: &[u64] = if stream.is_capturing() { &[ANY_STREAM] } else { &[stream.id(), ANY_STREAM] };
        let mut found = state.find(lists, asked);
        if found.is_none() && state.collect() {
            found = state.find(lists, asked);
        }
        if let Some(block) = found {
            state.stats.hits += 1;
            state.stats.pooled -= block.bytes;
            state.count_use(block.bytes, asked);
            leave(state, table);
            return Ok((block.ptr, block.bytes));
        }
        state.stats.misses += 1;
        let bytes = class(asked);
        // Giving memory back waits for the device, which a capture forbids.
        let may_release = !device.is_capturing();
        if may_release {
            state.make_room(bytes, asked);
        }
        if let Some(cap) = state.cap.filter(|cap| state.stats.allocated + bytes > *cap) {
            let in_use = state.stats.in_use;
            leave(state, table);
            return Err(Error::PoolCap { device: device.name().to_owned(), cap, requested: asked, in_use });
        }
        // Counted before it is had, so that no other thread takes the room under the cap.
        state.stats.allocated += bytes;
        leave(state, table);
        let mut ptr = 0;
        // Looking at other devices' streams may have made one of them current: activate again.
        // SAFETY: the output outlives the call; the size is not 0.
        let mut outcome = device.0.activate().and_then(|table| unsafe { table.mem_alloc(&mut ptr, bytes) });
        if is_out_of_memory(outcome) && may_release {
            tracing::debug!(device = device.name(), bytes, "out of memory: trimming the pool and trying once more");
            let mut state = self.lock();
            state.release_everything();
            leave(state, table);
            // SAFETY: as above.
            outcome = unsafe { table.mem_alloc(&mut ptr, bytes) };
        }
        let mut state = self.lock();
        if let Err(failure) = outcome {
            state.stats.allocated -= bytes;
            let in_use = state.stats.in_use;
            drop(state);
            if !is_out_of_memory(outcome) {
                return Err(device.error(failure));
            }
            let (mut free, mut total) = (0, device.info().total_memory);
            // SAFETY: the outputs outlive the call. A failure leaves what is known already.
            let _ = unsafe { table.mem_info(&mut free, &mut total) };
            return Err(Error::OutOfMemory { device: device.name().to_owned(), requested: asked, free, total, in_use });
        }
        state.stats.peak_allocated = state.stats.peak_allocated.max(state.stats.allocated);
        state.count_use(bytes, asked);
        Ok((ptr, bytes))
    }

    /// Takes a block back. `home` is its own stream; `others` are the other streams that used it.
    pub fn give(&self, device: &Device, (ptr, bytes, asked): (DevicePtr, usize, usize), home: &Stream, others: Vec<Stream>) {
        let mut state = self.lock();
        state.stats.in_use -= bytes;
        state.stats.requested -= asked;
        state.stats.pooled += bytes;
        state.clock += 1;
        let block = Free { ptr, bytes, freed: state.clock };
        if others.is_empty() {
            return state.put(home.id(), block);
        }
        if others.iter().any(Stream::is_capturing) {
            return state.parked.push((block, home.id(), others));
        }
        state.wait_for(vec![block], home.id(), &others);
        if let Ok(table) = device.activate() {
            leave(state, table);
        }
    }

    /// Looks again at what could not be waited for while a stream was captured.
    pub fn settle(&self, device: &Device) {
        let mut state = self.lock();
        state.collect();
        if let Ok(table) = device.activate() {
            leave(state, table);
        }
    }

    /// What is ready for `stream` becomes ready for every stream once its work is done.
    pub fn open_to_all(&self, stream: &Stream) -> Result<()> {
        let table = stream.device().activate()?;
        let mut state = self.lock();
        state.open_to_all(stream.device(), stream.id(), stream.raw());
        leave(state, table);
        Ok(())
    }

    /// A stream is about to be destroyed.
    pub fn retire(&self, device: &Device, table: &Table, stream: u64, raw: Handle) {
        let mut state = self.lock();
        state.open_to_all(device, stream, raw);
        leave(state, table);
    }

    pub fn trim(&self, device: &Device) -> Result<usize> {
        if device.is_capturing() {
            return Err(Error::Capturing { what: "trimming the memory pool" });
        }
        let table = device.activate()?;
        let mut state = self.lock();
        let before = state.stats.allocated;
        state.release_everything();
        let freed = before - state.stats.allocated;
        leave(state, table);
        Ok(freed)
    }

    pub fn release_all(&self, table: &Table) {
        let mut state = self.lock();
        state.release_everything();
        leave(state, table);
    }
}

impl State {
    fn count_use(&mut self, bytes: usize, asked: usize) {
        let stats = &mut self.stats;
        stats.in_use += bytes;
        stats.requested += asked;
        stats.peak_in_use = stats.peak_in_use.max(stats.in_use);
        stats.peak_requested = stats.peak_requested.max(stats.requested);
    }

    fn put(&mut self, stream: u64, block: Free) {
        self.ready.entry(stream).or_default().entry(block.bytes).or_default().push(block);
    }

    /// The smallest ready block that fits without wasting much.
    fn find(&mut self, lists: &[u64], asked: usize) -> Option<Free> {
        for list in lists {
            let Some(sizes) = self.ready.get_mut(list) else { continue };
            let Some((&bytes, blocks)) = sizes.range_mut(asked..=asked.saturating_mul(2)).find(|(_, blocks)| !blocks.is_empty()) else {
                continue;
            };
            let waste = bytes - asked;
            let all_waste = self.stats.in_use - self.stats.requested + waste;
            // A block of the right class always will; a larger one while all waste together stays small.
            let fits = bytes <= class(asked) || all_waste <= (self.stats.requested + asked) / 64;
            if !fits {
                continue;
            }
            let block = blocks.pop();
            if blocks.is_empty() {
                sizes.remove(&bytes);
            }
            return block;
        }
        None
    }

    /// Moves blocks whose events have happened to the ready lists; whether any moved.
    fn collect(&mut self) -> bool {
        for (block, home, streams) in std::mem::take(&mut self.parked) {
            if streams.iter().any(Stream::is_capturing) {
                self.parked.push((block, home, streams));
            } else {
                self.wait_for(vec![block], home, &streams);
                self.leaving.streams.extend(streams);
            }
        }
        let mut moved = false;
        for mut group in std::mem::take(&mut self.waiting) {
            group.events.retain(|event| !event.is_done());
            if group.events.is_empty() {
                moved = true;
                group.blocks.into_iter().for_each(|block| self.put(group.stream, block));
            } else {
                self.waiting.push(group);
            }
        }
        moved
    }

    fn wait_for(&mut self, blocks: Vec<Free>, home: u64, streams: &[Stream]) {
        match streams.iter().map(|stream| Mark::new(stream.device(), stream.raw())).collect() {
            Ok(events) => self.waiting.push(Waiting { blocks, events, stream: home }),
            // Freeing waits for the device by itself.
            Err(_) => blocks.into_iter().for_each(|block| self.free(block)),
        }
    }

    fn open_to_all(&mut self, device: &Device, stream: u64, raw: Handle) {
        let blocks: Vec<Free> = self.ready.remove(&stream).into_iter().flat_map(BTreeMap::into_values).flatten().collect();
        let later = self.waiting.iter_mut().filter(|group| group.stream == stream);
        for group in later {
            if let Ok(event) = Mark::new(device, raw) {
                group.events.push(event);
                group.stream = ANY_STREAM;
            }
        }
        if blocks.is_empty() {
            return;
        }
        match Mark::new(device, raw) {
            Ok(event) => self.waiting.push(Waiting { blocks, events: vec![event], stream: ANY_STREAM }),
            Err(_) => blocks.into_iter().for_each(|block| self.free(block)),
        }
    }

    /// Gives back the oldest unused blocks until `bytes` more fit under the cap and under the bound on unused memory.
    fn make_room(&mut self, bytes: usize, asked: usize) {
        let demand = self.stats.peak_requested.max(self.stats.requested + asked);
        let bound = (demand + demand / 25).max(demand + ALWAYS_KEPT);
        let limit = self.cap.map_or(bound, |cap| cap.min(bound));
        while self.stats.allocated + bytes > limit {
            let oldest = self.ready.iter().flat_map(|(list, sizes)| sizes.values().flatten().map(move |block| (*list, *block)));
            let Some((list, block)) = oldest.min_by_key(|(_, block)| block.freed) else { break };
            if let Some(blocks) = self.ready.get_mut(&list).and_then(|sizes| sizes.get_mut(&block.bytes)) {
                blocks.retain(|other| other.ptr != block.ptr);
            }
            self.free(block);
        }
        // The cap is a promise: rather wait for work that uses what was freed than refuse.
        if self.cap.is_some_and(|cap| self.stats.allocated + bytes > cap) {
            self.release_everything();
        }
    }

    fn release_everything(&mut self) {
        let ready = std::mem::take(&mut self.ready).into_values().flat_map(BTreeMap::into_values).flatten();
        let mut blocks: Vec<Free> = ready.collect();
        for (block, _, streams) in std::mem::take(&mut self.parked) {
            blocks.push(block);
            self.leaving.streams.extend(streams);
        }
        blocks.extend(std::mem::take(&mut self.waiting).into_iter().flat_map(|group| group.blocks));
        blocks.into_iter().for_each(|block| self.free(block));
    }

    fn free(&mut self, block: Free) {
        self.stats.allocated -= block.bytes;
        self.stats.pooled -= block.bytes;
        self.leaving.blocks.push(block);
    }
}

fn is_out_of_memory(outcome: Result<(), Failure>) -> bool {
    matches!(outcome, Err(Failure::Code { code: code::OUT_OF_MEMORY | code::HIP_RUNTIME_MEMORY, .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_never_smaller_and_little_larger() {
        for bytes in (1..4096).chain((0..44).flat_map(|log| [(1usize << log) - 1, 1 << log, (1 << log) + 1])).filter(|b| *b > 0) {
            let class = class(bytes);
            assert!(class >= bytes && class.is_multiple_of(SMALLEST), "{bytes} became {class}");
            let allowed = if bytes < MEBIBYTE { bytes / 8 + SMALLEST } else { bytes / 64 };
            assert!(class - bytes <= allowed, "{bytes} became {class}");
        }
        assert_eq!(class(usize::MAX), usize::MAX, "no overflow: the driver refuses it");
    }
}
