//! The memory that virtual GPUs see: host memory, in allocations that every access is checked against.
//!
//! A device address is the host address. All virtual devices of a process share one address space, as real ones do.

use std::alloc::Layout;
use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::heap::Heap;

/// Whose memory an allocation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A device's.
    Device(u32),
    /// Page-locked host memory of ours.
    Host,
    /// Unified memory, made on a device.
    Managed(u32),
    /// Memory of the application, registered.
    Registered,
    /// A loaded program of a device: its code, constants and variables.
    Program(u32),
}

/// A range of memory that kernels may touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocation {
    /// The first byte.
    pub start: u64,
    /// How many bytes.
    pub bytes: u64,
    /// Whose.
    pub kind: Kind,
    /// Stores are faults: code and constants.
    pub read_only: bool,
}

impl Allocation {
    /// One past the last byte.
    pub fn end(&self) -> u64 {
        self.start + self.bytes
    }
}

/// Alignment of what [`Memory::allocate`] gives; the drivers of real cards promise the same.
pub const ALIGNMENT: usize = 256;
/// Fresh memory begins with this, so that a kernel that reads what nobody wrote shows.
const POISON: u8 = 0xA5;
const POISONED: usize = 1 << 20;

/// Every allocation of a process.
#[derive(Debug, Default)]
pub struct Memory {
    ranges: RwLock<BTreeMap<u64, Allocation>>,
    /// Held for reading while a kernel runs: nothing that it may touch goes away under it.
    running: RwLock<()>,
    pub(crate) heap: Heap,
}

impl Memory {
    /// Nothing allocated.
    pub fn new() -> Memory {
        Memory::default()
    }

    /// Allocates `bytes` (not 0). `None` when the host has no such memory.
    pub fn allocate(&self, bytes: usize, kind: Kind) -> Option<u64> {
        let layout = layout(bytes)?;
        // SAFETY: the size is not 0: `layout` refuses that.
        let pointer = unsafe { std::alloc::alloc(layout) };
        if pointer.is_null() {
            return None;
        }
        // SAFETY: the range was just allocated.
        unsafe { pointer.write_bytes(POISON, bytes.min(POISONED)) };
        let start = pointer as u64;
        self.insert(Allocation { start, bytes: bytes as u64, kind, read_only: false });
        Some(start)
    }

    /// Makes memory of the application, or of a loaded program, known. The caller keeps it alive until [`Memory::forget`].
    pub fn insert(&self, allocation: Allocation) {
        self.ranges.write().unwrap_or_else(PoisonError::into_inner).insert(allocation.start, allocation);
    }

    /// Takes an allocation that begins at `start` out, once no kernel runs; the memory itself is untouched.
    pub fn forget(&self, start: u64) -> Option<Allocation> {
        let _none_runs = self.running.write().unwrap_or_else(PoisonError::into_inner);
        self.ranges.write().unwrap_or_else(PoisonError::into_inner).remove(&start)
    }

    /// Frees what [`Memory::allocate`] gave, once no kernel runs. `false` when there is no such allocation.
    pub fn free(&self, start: u64) -> bool {
        let ours = self.at(start).is_some_and(|a| !matches!(a.kind, Kind::Registered | Kind::Program(_)));
        if !ours {
            return false;
        }
        match self.forget(start).and_then(|a| layout(a.bytes as usize)) {
            Some(layout) => {
                // SAFETY: `allocate` made it with this layout, and it left the map just now.
                unsafe { std::alloc::dealloc(start as *mut u8, layout) };
                true
            }
            None => false,
        }
    }

    /// The allocation that begins at `start`.
    pub fn at(&self, start: u64) -> Option<Allocation> {
        self.ranges.read().unwrap_or_else(PoisonError::into_inner).get(&start).copied()
    }

    /// The allocation that holds `address`.
    pub fn find(&self, address: u64) -> Option<Allocation> {
        let ranges = self.ranges.read().unwrap_or_else(PoisonError::into_inner);
        let (_, allocation) = ranges.range(..=address).next_back()?;
        (address < allocation.end()).then_some(*allocation)
    }

    /// The allocation that holds all of `bytes` bytes at `address`.
    pub fn holds(&self, address: u64, bytes: u64) -> Option<Allocation> {
        self.find(address).filter(|allocation| address.checked_add(bytes).is_some_and(|end| end <= allocation.end()))
    }

    /// The allocation nearest to `address`, and how far away it is: positive when the address lies behind its end.
    pub fn nearest(&self, address: u64) -> Option<(Allocation, i64)> {
        let ranges = self.ranges.read().unwrap_or_else(PoisonError::into_inner);
        let before = ranges.range(..=address).next_back().map(|(_, a)| (*a, address.saturating_sub(a.end()) as i64));
        let after = ranges.range(address..).next().map(|(_, a)| (*a, -((a.start - address) as i64)));
        match (before, after) {
            (Some(before), Some(after)) => Some(if before.1 <= -after.1 { before } else { after }),
            (before, after) => before.or(after),
        }
    }

    /// Takes the memory of a launch out that its kernel alone knew: it need not wait for other kernels.
    pub(crate) fn release_block(&self, start: u64) {
        self.ranges.write().unwrap_or_else(PoisonError::into_inner).remove(&start);
    }

    /// Every allocation.
    pub fn all(&self) -> Vec<Allocation> {
        self.ranges.read().unwrap_or_else(PoisonError::into_inner).values().copied().collect()
    }

    /// Keeps kernels from starting, if none runs.
    pub(crate) fn nothing_runs(&self) -> Option<RwLockWriteGuard<'_, ()>> {
        self.running.try_write().ok()
    }

    /// Keeps every allocation where it is while a kernel runs.
    pub(crate) fn hold(&self) -> RwLockReadGuard<'_, ()> {
        self.running.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        for allocation in self.all() {
            self.free(allocation.start);
        }
    }
}

fn layout(bytes: usize) -> Option<Layout> {
    if bytes == 0 { None } else { Layout::from_size_align(bytes, ALIGNMENT).ok() }
}
