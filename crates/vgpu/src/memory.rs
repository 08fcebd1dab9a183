//! The memory of the virtual GPUs: host memory in allocations, against which every access is checked.
//!
//! Device addresses are host addresses. All virtual devices of a process share one address space, as real ones do.

use std::alloc::Layout;
use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::heap::Heap;

/// What an allocation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryKind {
    /// Memory of the device with this ordinal.
    Device(u32),
    /// Page-locked host memory that the runtime allocated.
    Host,
    /// Managed memory, allocated on the device with this ordinal.
    Managed(u32),
    /// Host memory of the application, registered by it.
    Registered,
    /// Code, constants and variables of a code object loaded on the device with this ordinal.
    CodeObject(u32),
}

/// A range of memory that kernels may access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocation {
    /// Address of the first byte.
    pub start: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// What it is.
    pub kind: MemoryKind,
    /// Whether stores fault (code and constants).
    pub read_only: bool,
}

impl Allocation {
    /// Returns the address past the last byte.
    pub fn end(&self) -> u64 {
        self.start + self.bytes
    }
}

/// Alignment of [`Memory::allocate`], the same as AMD's drivers have.
const ALIGNMENT: usize = 256;
/// Fills the start of fresh allocations, so that reads of uninitialized memory show.
const POISON: u8 = 0xA5;
const POISONED_BYTES: usize = 1 << 20;

/// The allocations of a process.
#[derive(Debug, Default)]
pub struct Memory {
    ranges: RwLock<BTreeMap<u64, Allocation>>,
    /// Read-locked while a kernel runs, so that no allocation is removed meanwhile.
    running: RwLock<()>,
    pub(crate) heap: Heap,
}

impl Memory {
    /// Creates an empty memory.
    pub fn new() -> Memory {
        Memory::default()
    }

    /// Allocates `bytes` bytes and returns their address; `None` when `bytes` is 0 or the host is out of memory.
    pub fn allocate(&self, bytes: usize, kind: MemoryKind) -> Option<u64> {
        let layout = layout(bytes)?;
        // SAFETY: `layout` rejects size 0.
        let pointer = unsafe { std::alloc::alloc(layout) };
        if pointer.is_null() {
            return None;
        }
        // SAFETY: the range was just allocated.
        unsafe { pointer.write_bytes(POISON, bytes.min(POISONED_BYTES)) };
        let start = pointer as u64;
        // SAFETY: the range was just allocated; `free` unregisters it before it deallocates.
        unsafe { self.register(Allocation { start, bytes: bytes as u64, kind, read_only: false }) };
        Some(start)
    }

    /// Lets kernels access memory that [`Memory::allocate`] did not allocate.
    ///
    /// # Safety
    /// The range must stay allocated until [`Memory::unregister`], readable and, unless `read_only`, writable. Nothing else may hold
    /// Rust references to it while a kernel runs.
    pub unsafe fn register(&self, allocation: Allocation) {
        self.ranges.write().unwrap_or_else(PoisonError::into_inner).insert(allocation.start, allocation);
    }

    /// Removes the allocation that begins at `start`, without freeing it. Waits until no kernel runs.
    pub fn unregister(&self, start: u64) -> Option<Allocation> {
        let _exclusive = self.running.write().unwrap_or_else(PoisonError::into_inner);
        self.ranges.write().unwrap_or_else(PoisonError::into_inner).remove(&start)
    }

    /// Removes the allocation that begins at `start`, without freeing it; `None` when a kernel runs or none begins there.
    pub fn try_unregister(&self, start: u64) -> Option<Allocation> {
        let _exclusive = self.try_exclusive()?;
        self.ranges.write().unwrap_or_else(PoisonError::into_inner).remove(&start)
    }

    /// Frees an allocation of [`Memory::allocate`]; returns `false` when none begins at `start`. Waits until no kernel runs.
    pub fn free(&self, start: u64) -> bool {
        let ours = self.allocation_at(start).is_some_and(|a| !matches!(a.kind, MemoryKind::Registered | MemoryKind::CodeObject(_)));
        if !ours {
            return false;
        }
        match self.unregister(start).and_then(|a| layout(a.bytes as usize)) {
            Some(layout) => {
                // SAFETY: `allocate` used this layout, and the range is no longer registered.
                unsafe { std::alloc::dealloc(start as *mut u8, layout) };
                true
            }
            None => false,
        }
    }

    /// Returns the allocation that begins at `start`.
    pub fn allocation_at(&self, start: u64) -> Option<Allocation> {
        self.ranges.read().unwrap_or_else(PoisonError::into_inner).get(&start).copied()
    }

    /// Returns the allocation that contains `address`.
    pub fn find(&self, address: u64) -> Option<Allocation> {
        let ranges = self.ranges.read().unwrap_or_else(PoisonError::into_inner);
        let (_, allocation) = ranges.range(..=address).next_back()?;
        (address < allocation.end()).then_some(*allocation)
    }

    /// Returns the allocation that contains all of the `bytes` bytes at `address`.
    pub fn find_range(&self, address: u64, bytes: u64) -> Option<Allocation> {
        self.find(address).filter(|allocation| address.checked_add(bytes).is_some_and(|end| end <= allocation.end()))
    }

    /// Returns the allocation nearest to `address` and the distance to it in bytes: positive when `address` is at or after its end,
    /// negative before its start, 0 inside.
    pub fn nearest(&self, address: u64) -> Option<(Allocation, i64)> {
        let ranges = self.ranges.read().unwrap_or_else(PoisonError::into_inner);
        let before = ranges.range(..=address).next_back().map(|(_, a)| (*a, address.saturating_sub(a.end()) as i64));
        let after = ranges.range(address..).next().map(|(_, a)| (*a, -((a.start - address) as i64)));
        match (before, after) {
            (Some(before), Some(after)) => Some(if before.1 <= -after.1 { before } else { after }),
            (before, after) => before.or(after),
        }
    }

    /// Removes an allocation that only one, finished launch could access: no need to wait for other kernels.
    pub(crate) fn unregister_unshared(&self, start: u64) {
        self.ranges.write().unwrap_or_else(PoisonError::into_inner).remove(&start);
    }

    /// Returns all allocations by address.
    pub fn allocations(&self) -> Vec<Allocation> {
        self.ranges.read().unwrap_or_else(PoisonError::into_inner).values().copied().collect()
    }

    /// Keeps kernels from starting; `None` when one runs.
    pub(crate) fn try_exclusive(&self) -> Option<RwLockWriteGuard<'_, ()>> {
        self.running.try_write().ok()
    }

    /// Keeps all allocations registered while a kernel runs.
    pub(crate) fn lock_for_execution(&self) -> RwLockReadGuard<'_, ()> {
        self.running.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        for allocation in self.allocations() {
            self.free(allocation.start);
        }
    }
}

fn layout(bytes: usize) -> Option<Layout> {
    if bytes == 0 { None } else { Layout::from_size_align(bytes, ALIGNMENT).ok() }
}
