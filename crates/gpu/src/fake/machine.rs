//! What a fake driver knows: memory, streams, events, graphs and modules, all in host memory.

use std::alloc::Layout;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::Fake;
use crate::vendor::MemoryKind;

/// Fresh device memory is full of this.
const POISON: u8 = 0xA5;
pub(super) const INVALID: i32 = 1;
pub(super) const OUT_OF_MEMORY: i32 = 2;
pub(super) const BAD_HANDLE: i32 = 400;

/// A kernel's launch, as its function sees it.
pub struct Invocation {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    pub(super) args: Vec<Vec<u8>>,
}

impl Invocation {
    /// An argument as a number.
    pub fn value<T: bytemuck::Pod>(&self, index: usize) -> T {
        bytemuck::pod_read_unaligned(&self.args[index])
    }

    /// An argument as memory of `len` elements.
    ///
    /// # Safety
    /// The argument must be a pointer to that many live elements that nothing else uses now.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn memory<T: bytemuck::Pod>(&self, index: usize, len: usize) -> &mut [T] {
        let address: u64 = self.value(index);
        // SAFETY: as the caller guarantees.
        unsafe { std::slice::from_raw_parts_mut(address as *mut T, len) }
    }
}

#[derive(Clone)]
pub(super) struct HostKernel {
    pub parameters: Vec<usize>,
    pub run: Arc<dyn Fn(&Invocation) + Send + Sync>,
}

pub(super) type Op = Arc<dyn Fn() + Send + Sync>;

/// An item of a stream's queue.
#[derive(Clone)]
pub(super) enum Item {
    Run(Op),
    Record(usize, u64),
    Wait(usize, u64),
}

pub(super) struct Allocation {
    pub bytes: usize,
    pub device: i32,
    pub kind: MemoryKind,
    /// Memory of the application is not ours to free.
    pub owned: bool,
}

#[derive(Default)]
pub(super) struct StreamState {
    pub queue: VecDeque<Item>,
    /// The graph that takes its work.
    pub capture: Option<usize>,
    pub device: i32,
}

#[derive(Default)]
pub(super) struct EventState {
    pub recorded: u64,
    pub happened: u64,
    pub stream: usize,
    pub capture: Option<usize>,
    pub device: i32,
    /// Destroyed while work still waits for it: goes when it happens.
    pub destroyed: bool,
}

pub(super) struct Machine {
    pub fake: Fake,
    pub faults: Vec<(String, usize, i32)>,
    pub lost: bool,
    pub copy_time: Duration,
    pub log: Vec<String>,
    /// What the layer under test did wrong.
    pub violations: Vec<String>,
    pub kernels: HashMap<String, HostKernel>,
    pub memory: BTreeMap<u64, Allocation>,
    pub streams: HashMap<usize, StreamState>,
    pub events: HashMap<usize, EventState>,
    pub graphs: HashMap<usize, Vec<Item>>,
    pub execs: HashMap<usize, Vec<Item>>,
    pub modules: HashMap<usize, Vec<String>>,
    pub functions: HashMap<usize, String>,
    pub peers: HashSet<(i32, i32)>,
    /// Allocations opened by their handle.
    pub mapped: Vec<u64>,
    pub next: usize,
}

impl Machine {
    pub fn new(fake: Fake) -> Machine {
        Machine {
            fake,
            faults: Vec::new(),
            lost: false,
            copy_time: Duration::ZERO,
            log: Vec::new(),
            violations: Vec::new(),
            kernels: HashMap::new(),
            memory: BTreeMap::new(),
            streams: HashMap::new(),
            events: HashMap::new(),
            graphs: HashMap::new(),
            execs: HashMap::new(),
            modules: HashMap::new(),
            functions: HashMap::new(),
            peers: HashSet::new(),
            mapped: Vec::new(),
            next: 0x1000,
        }
    }

    /// A fresh handle.
    pub fn handle(&mut self) -> usize {
        self.next += 16;
        self.next
    }

    pub fn device_bytes(&self) -> usize {
        self.memory.values().filter(|a| a.kind == MemoryKind::Device).map(|a| a.bytes).sum()
    }

    pub fn live_objects(&self) -> usize {
        let events = self.events.values().filter(|event| !event.destroyed).count();
        self.memory.len() + self.mapped.len() + self.streams.len() + events + self.graphs.len() + self.execs.len() + self.modules.len()
    }

    pub fn free_bytes(&self, device: i32) -> usize {
        let used: usize = self.memory.values().filter(|a| a.device == device && a.kind == MemoryKind::Device).map(|a| a.bytes).sum();
        self.fake.memory - used
    }

    pub fn allocate(&mut self, bytes: usize, device: i32, kind: MemoryKind) -> Result<u64, i32> {
        if bytes == 0 {
            return Err(INVALID);
        }
        if kind == MemoryKind::Device && bytes > self.free_bytes(device) {
            return Err(OUT_OF_MEMORY);
        }
        let layout = layout(bytes).ok_or(OUT_OF_MEMORY)?;
        // SAFETY: the size is not 0.
        let ptr = unsafe { std::alloc::alloc(layout) };
        if ptr.is_null() {
            return Err(OUT_OF_MEMORY);
        }
        // SAFETY: the range was just allocated. Poisoning all of a large one would only cost time.
        unsafe { std::ptr::write_bytes(ptr, POISON, bytes.min(1 << 20)) };
        self.memory.insert(ptr as u64, Allocation { bytes, device, kind, owned: true });
        Ok(ptr as u64)
    }

    pub fn release(&mut self, ptr: u64, kind: &[MemoryKind]) -> i32 {
        match self.memory.get(&ptr) {
            Some(allocation) if kind.contains(&allocation.kind) => {
                let allocation = self.memory.remove(&ptr).map(|a| (a.owned, a.bytes));
                if let Some((true, Some(layout))) = allocation.map(|(owned, bytes)| (owned, layout(bytes))) {
                    // SAFETY: `allocate` made it with this layout, and it left the map just now.
                    unsafe { std::alloc::dealloc(ptr as *mut u8, layout) };
                }
                0
            }
            _ => INVALID,
        }
    }

    /// The live allocation that holds the whole range.
    pub fn holds(&self, ptr: u64, bytes: usize) -> Option<&Allocation> {
        let (start, allocation) = self.memory.range(..=ptr).next_back()?;
        (ptr - start + bytes as u64 <= allocation.bytes as u64).then_some(allocation)
    }

    /// Queues work on a stream, or into the graph that captures it.
    pub fn push(&mut self, stream: usize, item: Item) -> i32 {
        let Some(state) = self.streams.get_mut(&stream) else { return BAD_HANDLE };
        match state.capture {
            None => state.queue.push_back(item),
            Some(graph) => {
                // One that was ended is gone.
                let Some(items) = self.graphs.get_mut(&graph) else { return 901 };
                // Order within the graph is the order of capture, which satisfies every wait.
                if let Item::Run(_) = item {
                    items.push(item);
                }
            }
        }
        0
    }

    /// The next item that may run for `stream` to make progress: its own, or one of a stream it waits for.
    pub fn next_item(&mut self, stream: usize) -> Option<Item> {
        let item = self.streams.get(&stream)?.queue.front()?.clone();
        if let Item::Wait(event, generation) = item {
            let state = self.events.get(&event);
            if let Some(state) = state.filter(|state| state.happened < generation) {
                let other = state.stream;
                return self.next_item(other);
            }
        }
        self.streams.get_mut(&stream)?.queue.pop_front()
    }
}

fn layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes, 256).ok()
}

impl Drop for Machine {
    fn drop(&mut self) {
        let all: Vec<u64> = self.memory.keys().copied().collect();
        for ptr in all {
            self.release(ptr, &[MemoryKind::Device, MemoryKind::Host, MemoryKind::Unified]);
        }
    }
}
