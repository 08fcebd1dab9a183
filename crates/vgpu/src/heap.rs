//! The heap of kernels' `malloc`: memory that kernels ask for while they run, and that stays until one of them gives it back.

use std::alloc::Layout;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::memory::{Allocation, Kind, Memory};

/// What the device library keeps about its heap: it begins as zeros. The library's own struct is somewhat smaller.
const BOOK: usize = 256 << 10;
/// The library cuts small blocks from slabs of this size, which it finds by clearing an address's low bits.
const SLAB: usize = 2 << 20;
const PAGE: usize = 4096;
/// What kernels may have at once.
const MOST: usize = 4 << 30;

/// Blocks of the heap.
#[derive(Debug, Default)]
pub(crate) struct Heap {
    blocks: Mutex<Blocks>,
}

#[derive(Debug, Default)]
struct Blocks {
    book: u64,
    used: BTreeMap<u64, Layout>,
    /// Given back, but maybe still in the mind of a running kernel.
    retired: Vec<(u64, Layout)>,
    bytes: usize,
}

impl Heap {
    fn blocks(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory {
    /// The book of the heap, made when first asked for. 0 when the host has no memory for it.
    pub(crate) fn heap(&self) -> u64 {
        let mut blocks = self.heap.blocks();
        // Blocks that were given back go once no kernel runs.
        if !blocks.retired.is_empty()
            && let Some(_none_runs) = self.nothing_runs()
        {
            for (start, layout) in std::mem::take(&mut blocks.retired) {
                // SAFETY: made with this layout; no kernel knows of it, and none runs that could have remembered it.
                unsafe { std::alloc::dealloc(start as *mut u8, layout) };
            }
        }
        if blocks.book == 0 {
            blocks.book = self.heap_block(&mut blocks, BOOK);
        }
        blocks.book
    }

    /// Memory for a kernel, zeroed; 0 when there is none.
    pub(crate) fn heap_allocate(&self, bytes: u64) -> u64 {
        let mut blocks = self.heap.blocks();
        match usize::try_from(bytes) {
            Ok(bytes) if bytes != 0 && bytes <= MOST - blocks.bytes.min(MOST) => self.heap_block(&mut blocks, bytes),
            _ => 0,
        }
    }

    fn heap_block(&self, blocks: &mut Blocks, bytes: usize) -> u64 {
        let Ok(layout) = Layout::from_size_align(bytes, if bytes >= SLAB { SLAB } else { PAGE }) else { return 0 };
        // SAFETY: the size is not 0.
        let start = unsafe { std::alloc::alloc_zeroed(layout) } as u64;
        if start != 0 {
            blocks.used.insert(start, layout);
            blocks.bytes += bytes;
            self.insert(Allocation { start, bytes: bytes as u64, kind: Kind::Program(0), read_only: false });
        }
        start
    }

    /// Takes memory back; `false` when the heap did not give it.
    pub(crate) fn heap_free(&self, start: u64) -> bool {
        let mut blocks = self.heap.blocks();
        if start == blocks.book {
            return false;
        }
        let Some(layout) = blocks.used.remove(&start) else { return false };
        blocks.bytes -= layout.size();
        blocks.retired.push((start, layout));
        self.release_block(start);
        true
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        let blocks = std::mem::take(&mut *self.blocks());
        for (start, layout) in blocks.used.into_iter().chain(blocks.retired) {
            // SAFETY: made with this layout; no kernel runs, for each holds the memory that this heap is of.
            unsafe { std::alloc::dealloc(start as *mut u8, layout) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_come_aligned_and_zeroed_and_go_when_no_kernel_runs() {
        let memory = Memory::new();
        let book = memory.heap();
        assert_ne!(book, 0);
        let (small, slab) = (memory.heap_allocate(10_000), memory.heap_allocate(SLAB as u64));
        assert_eq!((small % PAGE as u64, slab % SLAB as u64), (0, 0));
        assert!(memory.holds(slab, SLAB as u64).is_some());
        // Neither HIP's free nor a wrong address gets at them.
        assert!(!memory.free(small) && !memory.heap_free(small + 1) && !memory.heap_free(book));
        let runs = memory.hold();
        assert!(memory.heap_free(small) && !memory.heap_free(small));
        assert!(memory.holds(small, 1).is_none());
        assert_eq!((memory.heap(), memory.heap.blocks().retired.len()), (book, 1));
        drop(runs);
        assert_eq!((memory.heap(), memory.heap.blocks().retired.len()), (book, 0));
        assert_eq!([0, u64::MAX, MOST as u64 + 1].map(|bytes| memory.heap_allocate(bytes)), [0; 3]);
    }
}
