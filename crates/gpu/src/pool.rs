//! The caching allocator: freed device memory is kept and reused in stream order.
//!
//! Work queued on the owner's stream may still use a freed block. Later work on the same stream runs after it, so that stream can reuse the
//! block immediately, without an event. Events cover other streams that used the block; they are only queried when memory is short.
//!
//! Sizes are rounded up to fine size classes (an eighth of a power of two below 1 MiB, a 64th above). Before the driver allocates a new
//! block, unused blocks are freed until the pool holds at most 4 % more than the peak demand. Power-of-two classes would waste a quarter of
//! the card on average.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::device::Device;
use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::stream::Stream;
use crate::table::{DevicePtr, Failure, Handle, Table};
use crate::vendor::code;

/// The list of blocks that no queued work uses.
const ANY_STREAM: u64 = 0;
const SMALLEST: usize = 512;
const MEBIBYTE: usize = 1 << 20;
/// Unused memory that is always kept: freeing less saves too little.
const ALWAYS_KEPT: usize = 32 * MEBIBYTE;

/// Statistics of the pool, in bytes unless stated otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Allocated from the driver: in use and pooled.
    pub allocated: usize,
    /// Blocks of live buffers.
    pub in_use: usize,
    /// Requested sizes of live buffers.
    pub requested: usize,
    /// Allocated and not in use.
    pub pooled: usize,
    /// Allocations served from the pool (count).
    pub hits: u64,
    /// Allocations served by the driver (count).
    pub misses: u64,
    /// Peak of `in_use`.
    pub peak_in_use: usize,
    /// Peak of `requested`.
    pub peak_requested: usize,
    /// Peak of `allocated`.
    pub peak_allocated: usize,
}

#[derive(Default)]
pub(crate) struct Pool(Mutex<State>);

#[derive(Default)]
struct State {
    /// By stream, then by size.
    ready: HashMap<u64, BTreeMap<usize, Vec<Free>>>,
    waiting: Vec<Waiting>,
    /// Freed while a stream that used them was captured: an event recorded then would belong to the graph.
    parked: Vec<(Free, u64, Vec<Stream>)>,
    discarded: Discarded,
    cap: Option<usize>,
    clock: u64,
    stats: PoolStats,
}

#[derive(Debug, Clone, Copy)]
struct Free {
    ptr: DevicePtr,
    bytes: usize,
    /// When it was freed; the oldest is freed first.
    freed: u64,
}

struct Waiting {
    blocks: Vec<Free>,
    events: Vec<PoolEvent>,
    /// The stream that may reuse the blocks once the events are done.
    stream: u64,
}

/// An event of the pool. It holds its driver, not its device, or the device would never be dropped.
struct PoolEvent {
    driver: Arc<Driver>,
    raw: Handle,
}

// SAFETY: an event handle may be used from any thread.
unsafe impl Send for PoolEvent {}

impl PoolEvent {
    /// Records an event after the work queued on a stream of `device`. Leaves `device` current.
    fn new(device: &Device, stream: Handle) -> Result<PoolEvent, Failure> {
        const DISABLE_TIMING: u32 = 2;
        let table = device.0.activate()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the output outlives the call.
        unsafe { table.event_create(&mut raw, DISABLE_TIMING)? };
        let event = PoolEvent { driver: device.driver().clone(), raw };
        // SAFETY: both handles are live.
        unsafe { table.event_record(event.raw, stream)? };
        Ok(event)
    }

    fn is_done(&self) -> bool {
        // SAFETY: the handle is live.
        unsafe { self.driver.table.event_query(self.raw) }.is_ok()
    }
}

impl Drop for PoolEvent {
    fn drop(&mut self) {
        // SAFETY: the handle is ours, and this is its last use.
        let _ = unsafe { self.driver.table.event_destroy(self.raw) };
    }
}

/// Returns the block size for a request: from 1 MiB on at most 1/64 larger.
fn size_class(bytes: usize) -> usize {
    let steps = if bytes < MEBIBYTE { 8 } else { 64 };
    let granule = (bytes.checked_ilog2().map_or(0, |log| 1usize << log) / steps).max(SMALLEST);
    bytes.checked_next_multiple_of(granule).unwrap_or(bytes)
}

/// Blocks to free and streams to drop after the lock is released: freeing waits for the device, which may wait for a host function that
/// frees a buffer, and dropping the last handle of a stream calls the pool.
#[derive(Default)]
struct Discarded {
    blocks: Vec<Free>,
    streams: Vec<Stream>,
}

impl Discarded {
    fn free(self, table: &Table) {
        for block in self.blocks {
            // SAFETY: the pool owned the block and no longer lists it. Both vendors wait for work that still uses it.
            if let Err(failure) = unsafe { table.mem_free(block.ptr) } {
                tracing::warn!(?failure, bytes = block.bytes, "freeing device memory failed");
            }
        }
    }
}

/// Releases the lock, then frees what was discarded.
fn unlock_and_free(mut state: MutexGuard<'_, State>, table: &Table) {
    let discarded = std::mem::take(&mut state.discarded);
    drop(state);
    discarded.free(table);
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

    /// Returns the address and size of a block of at least `requested` bytes for work on `stream`.
    pub fn take(&self, stream: &Stream, requested: usize) -> Result<(DevicePtr, usize)> {
        let device = stream.device();
        let table = device.activate()?;
        let mut state = self.lock();
        // A graph may run on any stream, so a capture can only take blocks that nothing uses.
        let lists: &[u64] = if stream.is_capturing() { &[ANY_STREAM] } else { &[stream.id(), ANY_STREAM] };
        let mut found = state.find(lists, requested);
        if found.is_none() && state.collect() {
            found = state.find(lists, requested);
        }
        if let Some(block) = found {
            state.stats.hits += 1;
            state.stats.pooled -= block.bytes;
            state.count_use(block.bytes, requested);
            unlock_and_free(state, table);
            return Ok((block.ptr, block.bytes));
        }
        state.stats.misses += 1;
        let bytes = size_class(requested);
        // Freeing waits for the device, which is not allowed during a capture.
        let may_release = !device.is_capturing();
        if may_release {
            state.free_unused(bytes, requested);
        }
        if let Some(cap) = state.cap.filter(|cap| state.stats.allocated + bytes > *cap) {
            let in_use = state.stats.in_use;
            unlock_and_free(state, table);
            return Err(Error::PoolCap { device: device.name().to_owned(), cap, requested, in_use });
        }
        // Counted before the allocation, so that another thread cannot exceed the cap meanwhile.
        state.stats.allocated += bytes;
        unlock_and_free(state, table);
        let mut ptr = 0;
        // Recording events may have made another device current: activate this one again.
        // SAFETY: the output outlives the call; the size is not 0.
        let mut outcome = device.0.activate().and_then(|table| unsafe { table.mem_alloc(&mut ptr, bytes) });
        if is_out_of_memory(outcome) && may_release {
            tracing::debug!(device = device.name(), bytes, "out of memory: trimming the pool and retrying");
            let mut state = self.lock();
            state.release_everything();
            unlock_and_free(state, table);
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
            // SAFETY: the outputs outlive the call. A failure leaves the initial values.
            let _ = unsafe { table.mem_info(&mut free, &mut total) };
            return Err(Error::OutOfMemory { device: device.name().to_owned(), requested, free, total, in_use });
        }
        state.stats.peak_allocated = state.stats.peak_allocated.max(state.stats.allocated);
        state.count_use(bytes, requested);
        Ok((ptr, bytes))
    }

    /// Takes a block back. `home` is the stream it was allocated for; `others` are the other streams that used it.
    pub fn give_back(&self, device: &Device, (ptr, bytes, requested): (DevicePtr, usize, usize), home: &Stream, others: Vec<Stream>) {
        let mut state = self.lock();
        state.stats.in_use -= bytes;
        state.stats.requested -= requested;
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
            unlock_and_free(state, table);
        }
    }

    /// Records events for blocks that were freed during a capture.
    pub fn collect_parked(&self, device: &Device) {
        let mut state = self.lock();
        state.collect();
        if let Ok(table) = device.activate() {
            unlock_and_free(state, table);
        }
    }

    /// Makes the free blocks of `stream` available to all streams once its work is done.
    pub fn share_blocks_of(&self, stream: &Stream) -> Result<()> {
        let table = stream.device().activate()?;
        let mut state = self.lock();
        state.share_blocks_of(stream.device(), stream.id(), stream.raw());
        unlock_and_free(state, table);
        Ok(())
    }

    /// Takes over the free blocks of a stream that is about to be destroyed.
    pub fn retire_stream(&self, device: &Device, table: &Table, stream: u64, raw: Handle) {
        let mut state = self.lock();
        state.share_blocks_of(device, stream, raw);
        unlock_and_free(state, table);
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
        unlock_and_free(state, table);
        Ok(freed)
    }

    pub fn release_all(&self, table: &Table) {
        let mut state = self.lock();
        state.release_everything();
        unlock_and_free(state, table);
    }
}

impl State {
    fn count_use(&mut self, bytes: usize, requested: usize) {
        let stats = &mut self.stats;
        stats.in_use += bytes;
        stats.requested += requested;
        stats.peak_in_use = stats.peak_in_use.max(stats.in_use);
        stats.peak_requested = stats.peak_requested.max(stats.requested);
    }

    fn put(&mut self, stream: u64, block: Free) {
        self.ready.entry(stream).or_default().entry(block.bytes).or_default().push(block);
    }

    /// Takes the smallest free block that fits without much waste.
    fn find(&mut self, lists: &[u64], requested: usize) -> Option<Free> {
        for list in lists {
            let Some(sizes) = self.ready.get_mut(list) else { continue };
            let Some((&bytes, blocks)) = sizes.range_mut(requested..=requested.saturating_mul(2)).find(|(_, blocks)| !blocks.is_empty())
            else {
                continue;
            };
            let waste = bytes - requested;
            let all_waste = self.stats.in_use - self.stats.requested + waste;
            // A block of the same size class always fits; a larger one only while the total waste is small.
            let fits = bytes <= size_class(requested) || all_waste <= (self.stats.requested + requested) / 64;
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

    /// Moves blocks whose events are done to the free lists; returns whether any moved.
    fn collect(&mut self) -> bool {
        for (block, home, streams) in std::mem::take(&mut self.parked) {
            if streams.iter().any(Stream::is_capturing) {
                self.parked.push((block, home, streams));
            } else {
                self.wait_for(vec![block], home, &streams);
                self.discarded.streams.extend(streams);
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
        match streams.iter().map(|stream| PoolEvent::new(stream.device(), stream.raw())).collect() {
            Ok(events) => self.waiting.push(Waiting { blocks, events, stream: home }),
            // Freeing waits for the device.
            Err(_) => blocks.into_iter().for_each(|block| self.free(block)),
        }
    }

    fn share_blocks_of(&mut self, device: &Device, stream: u64, raw: Handle) {
        let blocks: Vec<Free> = self.ready.remove(&stream).into_iter().flat_map(BTreeMap::into_values).flatten().collect();
        let later = self.waiting.iter_mut().filter(|group| group.stream == stream);
        for group in later {
            if let Ok(event) = PoolEvent::new(device, raw) {
                group.events.push(event);
                group.stream = ANY_STREAM;
            }
        }
        if blocks.is_empty() {
            return;
        }
        match PoolEvent::new(device, raw) {
            Ok(event) => self.waiting.push(Waiting { blocks, events: vec![event], stream: ANY_STREAM }),
            Err(_) => blocks.into_iter().for_each(|block| self.free(block)),
        }
    }

    /// Frees the oldest unused blocks until `bytes` more fit under the cap and under the bound on unused memory.
    fn free_unused(&mut self, bytes: usize, requested: usize) {
        let demand = self.stats.peak_requested.max(self.stats.requested + requested);
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
        // Rather wait for queued work than fail because of the cap.
        if self.cap.is_some_and(|cap| self.stats.allocated + bytes > cap) {
            self.release_everything();
        }
    }

    fn release_everything(&mut self) {
        let ready = std::mem::take(&mut self.ready).into_values().flat_map(BTreeMap::into_values).flatten();
        let mut blocks: Vec<Free> = ready.collect();
        for (block, _, streams) in std::mem::take(&mut self.parked) {
            blocks.push(block);
            self.discarded.streams.extend(streams);
        }
        blocks.extend(std::mem::take(&mut self.waiting).into_iter().flat_map(|group| group.blocks));
        blocks.into_iter().for_each(|block| self.free(block));
    }

    fn free(&mut self, block: Free) {
        self.stats.allocated -= block.bytes;
        self.stats.pooled -= block.bytes;
        self.discarded.blocks.push(block);
    }
}

fn is_out_of_memory(outcome: Result<(), Failure>) -> bool {
    matches!(outcome, Err(Failure::Code { code: code::OUT_OF_MEMORY | code::HIP_RUNTIME_MEMORY, .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_class_is_never_smaller_and_little_larger() {
        for bytes in (1..4096).chain((0..44).flat_map(|log| [(1usize << log) - 1, 1 << log, (1 << log) + 1])).filter(|b| *b > 0) {
            let class = size_class(bytes);
            assert!(class >= bytes && class.is_multiple_of(SMALLEST), "{bytes} became {class}");
            let allowed = if bytes < MEBIBYTE { bytes / 8 + SMALLEST } else { bytes / 64 };
            assert!(class - bytes <= allowed, "{bytes} became {class}");
        }
        assert_eq!(size_class(usize::MAX), usize::MAX, "no overflow: the driver rejects it");
    }
}
