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
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::device::Device;
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
    /// Streams that are not needed any more. Dropping the last handle of one comes back to the pool, so they are dropped
    /// when its lock is free.
    done_with: Vec<Stream>,
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
    events: Vec<Event>,
    /// The stream the blocks are ready for once the events have happened.
    stream: u64,
}

/// An event that the pool owns. It does not hold its device, or the device would never be dropped.
struct Event(Handle);

// SAFETY: an event handle may be used from any thread.
unsafe impl Send for Event {}

/// The block size for a request: never less than asked for, at most 1/64 more from 1 MiB on.
fn class(bytes: usize) -> usize {
    let steps = if bytes < MEBIBYTE { 8 } else { 64 };
    let granule = (bytes.checked_ilog2().map_or(0, |log| 1usize << log) / steps).max(SMALLEST);
    bytes.checked_next_multiple_of(granule).unwrap_or(bytes)
}

/// The pool's lock; see `done_with`.
struct Locked<'a>(Option<MutexGuard<'a, State>>);

impl Deref for Locked<'_> {
    type Target = State;
    fn deref(&self) -> &State {
        self.0.as_ref().expect("taken by drop alone")
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        self.0.as_mut().expect("taken by drop alone")
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let streams = self.0.take().map(|mut state| std::mem::take(&mut state.done_with));
        drop(streams);
    }
}

impl Pool {
    fn lock(&self) -> Locked<'_> {
        Locked(Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)))
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
        if found.is_none() && state.collect(table) {
            found = state.find(lists, asked);
        }
        if let Some(block) = found {
            state.stats.hits += 1;
            state.stats.pooled -= block.bytes;
            state.count_use(block.bytes, asked);
            return Ok((block.ptr, block.bytes));
        }
        state.stats.misses += 1;
        let bytes = class(asked);
        // Giving memory back waits for the device, which a capture forbids.
        let may_release = device.0.captures.load(Ordering::Acquire) == 0;
        if may_release {
            state.make_room(table, bytes, asked);
        }
        let (cap, in_use) = (state.cap, state.stats.in_use);
        if let Some(cap) = cap.filter(|cap| state.stats.allocated + bytes > *cap) {
            return Err(Error::PoolCap { device: device.name().to_owned(), cap, requested: asked, in_use });
        }
        let mut ptr = 0;
        // SAFETY: the output outlives the call; the size is not 0.
        let mut outcome = unsafe { table.mem_alloc(&mut ptr, bytes) };
        if is_out_of_memory(outcome) && may_release {
            tracing::debug!(device = device.name(), bytes, "out of memory: trimming the pool and trying once more");
            state.release_everything(table);
            // SAFETY: as above.
            outcome = unsafe { table.mem_alloc(&mut ptr, bytes) };
        }
        if is_out_of_memory(outcome) {
            let (mut free, mut total) = (0, device.info().total_memory);
            // SAFETY: the outputs outlive the call. A failure leaves what is known already.
            let _ = unsafe { table.mem_info(&mut free, &mut total) };
            return Err(Error::OutOfMemory { device: device.name().to_owned(), requested: asked, free, total, in_use });
        }
        device.check(outcome)?;
        state.stats.allocated += bytes;
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
            state.put(home.id(), block);
        } else if others.iter().any(Stream::is_capturing) {
            state.parked.push((block, home.id(), others));
        } else if let Ok(table) = device.activate() {
            state.wait_for(table, vec![block], home.id(), &others);
        }
    }

    /// A stream is about to be destroyed: what is ready for it becomes ready for every stream once its work is done.
    pub fn retire(&self, table: &Table, stream: u64, raw: Handle) {
        let mut state = self.lock();
        let blocks: Vec<Free> = state.ready.remove(&stream).into_iter().flat_map(BTreeMap::into_values).flatten().collect();
        if blocks.is_empty() {
            return;
        }
        match record(table, raw) {
            Ok(event) => state.waiting.push(Waiting { blocks, events: vec![event], stream: ANY_STREAM }),
            // Freeing waits for the device by itself.
            Err(_) => blocks.into_iter().for_each(|block| state.free(table, block)),
        }
    }

    pub fn trim(&self, device: &Device) -> Result<usize> {
        if device.0.captures.load(Ordering::Acquire) > 0 {
            return Err(Error::Capturing { what: "trimming the memory pool" });
        }
        let table = device.activate()?;
        let mut state = self.lock();
        let before = state.stats.allocated;
        state.release_everything(table);
        Ok(before - state.stats.allocated)
    }

    pub fn release_all(&self, table: &Table) {
        self.lock().release_everything(table);
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
    fn collect(&mut self, table: &Table) -> bool {
        for (block, home, streams) in std::mem::take(&mut self.parked) {
            if streams.iter().any(Stream::is_capturing) {
                self.parked.push((block, home, streams));
            } else {
                self.wait_for(table, vec![block], home, &streams);
                self.done_with.extend(streams);
            }
        }
        let mut moved = false;
        for mut group in std::mem::take(&mut self.waiting) {
            // SAFETY: the pool owns the event until it is destroyed below.
            group.events.retain(|event| match unsafe { table.event_query(event.0) } {
                Ok(()) => {
                    destroy(table, event);
                    false
                }
                Err(_) => true,
            });
            if group.events.is_empty() {
                moved = true;
                group.blocks.into_iter().for_each(|block| self.put(group.stream, block));
            } else {
                self.waiting.push(group);
            }
        }
        moved
    }

    fn wait_for(&mut self, table: &Table, blocks: Vec<Free>, home: u64, streams: &[Stream]) {
        let recorded: Result<Vec<Event>, Failure> = streams.iter().map(|stream| record(table, stream.raw())).collect();
        match recorded {
            Ok(events) => self.waiting.push(Waiting { blocks, events, stream: home }),
            // Freeing waits for the device by itself.
            Err(_) => blocks.into_iter().for_each(|block| self.free(table, block)),
        }
    }

    /// Gives back the oldest unused blocks until `bytes` more fit under the cap and under the bound on unused memory.
    fn make_room(&mut self, table: &Table, bytes: usize, asked: usize) {
        let demand = self.stats.peak_requested.max(self.stats.requested + asked);
        let bound = (demand + demand / 25).max(demand + ALWAYS_KEPT);
        let limit = self.cap.map_or(bound, |cap| cap.min(bound));
        while self.stats.allocated + bytes > limit {
            let oldest = self.ready.iter().flat_map(|(list, sizes)| sizes.values().flatten().map(move |block| (*list, *block)));
            let Some((list, block)) = oldest.min_by_key(|(_, block)| block.freed) else { break };
            if let Some(blocks) = self.ready.get_mut(&list).and_then(|sizes| sizes.get_mut(&block.bytes)) {
                blocks.retain(|other| other.ptr != block.ptr);
            }
            self.free(table, block);
        }
    }

    fn release_everything(&mut self, table: &Table) {
        let ready = std::mem::take(&mut self.ready).into_values().flat_map(BTreeMap::into_values).flatten();
        let waiting = std::mem::take(&mut self.waiting);
        let mut blocks: Vec<Free> = ready.collect();
        for (block, _, streams) in std::mem::take(&mut self.parked) {
            blocks.push(block);
            self.done_with.extend(streams);
        }
        blocks.into_iter().for_each(|block| self.free(table, block));
        for group in waiting {
            group.events.iter().for_each(|event| destroy(table, event));
            group.blocks.into_iter().for_each(|block| self.free(table, block));
        }
    }

    fn free(&mut self, table: &Table, block: Free) {
        // SAFETY: the pool owns the block. Both vendors wait for work that still uses it.
        if let Err(failure) = unsafe { table.mem_free(block.ptr) } {
            tracing::warn!(?failure, bytes = block.bytes, "freeing device memory failed");
        }
        self.stats.allocated -= block.bytes;
        self.stats.pooled -= block.bytes;
    }
}

fn is_out_of_memory(outcome: Result<(), Failure>) -> bool {
    matches!(outcome, Err(Failure::Code { code: code::OUT_OF_MEMORY | code::HIP_RUNTIME_MEMORY, .. }))
}

/// Records an event without timing.
fn record(table: &Table, stream: Handle) -> Result<Event, Failure> {
    const DISABLE_TIMING: u32 = 2;
    let mut event = std::ptr::null_mut();
    // SAFETY: the output outlives the call.
    unsafe { table.event_create(&mut event, DISABLE_TIMING)? };
    let event = Event(event);
    // SAFETY: both handles are live.
    match unsafe { table.event_record(event.0, stream) } {
        Ok(()) => Ok(event),
        Err(failure) => {
            destroy(table, &event);
            Err(failure)
        }
    }
}

fn destroy(table: &Table, event: &Event) {
    // SAFETY: the pool owns the event, and every caller forgets it afterwards.
    let _ = unsafe { table.event_destroy(event.0) };
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
