//! The heap behind `malloc` and `free` in kernels.

use std::alloc::Layout;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::memory::{Allocation, Memory, MemoryKind};

/// Size of the device library's heap header, which starts zeroed. The library's own struct is somewhat smaller.
const HEADER_BYTES: usize = 256 << 10;
/// The device library splits slabs of this size into small blocks, and finds a slab by clearing an address's low bits.
const SLAB_BYTES: usize = 2 << 20;
const PAGE: usize = 4096;
/// The most memory that kernels may hold at a time.
const MAX_BYTES: usize = 4 << 30;

/// The blocks that kernels allocated.
#[derive(Debug, Default)]
pub(crate) struct Heap {
    blocks: Mutex<Blocks>,
}

#[derive(Debug, Default)]
struct Blocks {
    header: u64,
    used: BTreeMap<u64, Layout>,
    /// Freed, but possibly still cached in the access ranges of a running wavefront.
    retired: Vec<(u64, Layout)>,
    bytes: usize,
}

impl Heap {
    fn blocks(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory {
    /// Returns the address of the heap header, which is allocated on first use; 0 when the host is out of memory.
    pub(crate) fn heap(&self) -> u64 {
        let mut blocks = self.heap.blocks();
        // Freed blocks are deallocated once no kernel runs.
        if !blocks.retired.is_empty()
            && let Some(_exclusive) = self.try_exclusive()
        {
            for (start, layout) in std::mem::take(&mut blocks.retired) {
                // SAFETY: allocated with this layout and unregistered; no kernel runs that could have cached the range.
                unsafe { std::alloc::dealloc(start as *mut u8, layout) };
            }
        }
        if blocks.header == 0 {
            blocks.header = self.heap_block(&mut blocks, HEADER_BYTES);
        }
        blocks.header
    }

    /// Allocates zeroed memory for a kernel; returns 0 when `bytes` is 0 or the heap is full.
    pub(crate) fn heap_allocate(&self, bytes: u64) -> u64 {
        let mut blocks = self.heap.blocks();
        match usize::try_from(bytes) {
            Ok(bytes) if bytes != 0 && bytes <= MAX_BYTES - blocks.bytes.min(MAX_BYTES) => self.heap_block(&mut blocks, bytes),
            _ => 0,
        }
    }

    fn heap_block(&self, blocks: &mut Blocks, bytes: usize) -> u64 {
        let Ok(layout) = Layout::from_size_align(bytes, if bytes >= SLAB_BYTES { SLAB_BYTES } else { PAGE }) else { return 0 };
        // SAFETY: the size is not 0.
        let start = unsafe { std::alloc::alloc_zeroed(layout) } as u64;
        if start != 0 {
            blocks.used.insert(start, layout);
            blocks.bytes += bytes;
            let allocation = Allocation { start, bytes: bytes as u64, kind: MemoryKind::CodeObject(0), read_only: false };
            // SAFETY: the block was just allocated, and is deallocated only after it was unregistered.
            unsafe { self.register(allocation) };
        }
        start
    }

    /// Frees a block; returns `false` when `start` is not one.
    pub(crate) fn heap_free(&self, start: u64) -> bool {
        let mut blocks = self.heap.blocks();
        if start == blocks.header {
            return false;
        }
        let Some(layout) = blocks.used.remove(&start) else { return false };
        blocks.bytes -= layout.size();
        blocks.retired.push((start, layout));
        self.unregister_unshared(start);
        true
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        let blocks = std::mem::take(&mut *self.blocks());
        for (start, layout) in blocks.used.into_iter().chain(blocks.retired) {
            // SAFETY: allocated with this layout; no kernel runs, because each holds the `Memory` that owns this heap.
            unsafe { std::alloc::dealloc(start as *mut u8, layout) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_and_deallocated_when_no_kernel_runs() {
        let memory = Memory::new();
        let header = memory.heap();
        assert_ne!(header, 0);
        let (small, slab) = (memory.heap_allocate(10_000), memory.heap_allocate(SLAB_BYTES as u64));
        assert_eq!((small % PAGE as u64, slab % SLAB_BYTES as u64), (0, 0));
        assert!(memory.find_range(slab, SLAB_BYTES as u64).is_some());
        // `hipFree` and wrong addresses do not free them.
        assert!(!memory.free(small) && !memory.heap_free(small + 1) && !memory.heap_free(header));
        let runs = memory.lock_for_execution();
        assert!(memory.heap_free(small) && !memory.heap_free(small));
        assert!(memory.find_range(small, 1).is_none());
        assert_eq!((memory.heap(), memory.heap.blocks().retired.len()), (header, 1));
        drop(runs);
        assert_eq!((memory.heap(), memory.heap.blocks().retired.len()), (header, 0));
        assert_eq!([0, u64::MAX, MAX_BYTES as u64 + 1].map(|bytes| memory.heap_allocate(bytes)), [0; 3]);
    }
}
