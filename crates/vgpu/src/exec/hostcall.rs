//! What a kernel asks of the host while it runs, and what the groups of a grid meet at.

mod buffer;
mod format;
mod services;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use super::Launch;
use crate::code_object::Kernel;
use crate::memory::{Allocation, Memory, MemoryKind};
use buffer::Buffer;
use services::Services;

/// The buffer through which a kernel calls the host.
pub struct Hostcall {
    memory: Arc<Memory>,
    buffer: Option<Buffer>,
    services: Mutex<Services>,
    grid: Option<Grid>,
    heap: u64,
}

impl Hostcall {
    /// Made only of what the kernel asks for. `waves` are in flight at once, at most.
    pub fn new(memory: &Arc<Memory>, kernel: &Kernel, launch: &Launch, waves: usize) -> Hostcall {
        let asks = |kind: &str| kernel.arguments.iter().any(|argument| argument.value_kind == kind);
        Hostcall {
            memory: memory.clone(),
            buffer: asks("hidden_hostcall_buffer").then(|| Buffer::new(memory, waves)),
            services: Mutex::default(),
            grid: (launch.cooperative && asks("hidden_multigrid_sync_arg")).then(|| Grid::new(memory, launch)),
            heap: if asks("hidden_heap_v1") { memory.heap() } else { 0 },
        }
    }

    /// Its address; 0 when the kernel has none.
    pub fn address(&self) -> u64 {
        self.buffer.as_ref().map_or(0, Buffer::address)
    }

    /// The words that groups of a grid meet at; 0 when the launch is not cooperative.
    pub fn grid_sync(&self) -> u64 {
        self.grid.as_ref().map_or(0, |grid| grid.words.as_ptr() as u64)
    }

    /// Where the device library keeps the heap of `malloc`; 0 when the kernel has none.
    pub fn heap(&self) -> u64 {
        self.heap
    }

    /// Answers what kernels asked; any thread may. An error says what was asked that cannot be done: its wave never goes on.
    pub fn serve(&self, print: &(dyn Fn(&str) + Sync)) -> Result<(), String> {
        let Some(buffer) = self.buffer.as_ref().filter(|buffer| buffer.waiting()) else { return Ok(()) };
        let mut services = self.services.lock().unwrap_or_else(PoisonError::into_inner);
        let mut refused = Ok(());
        for request in buffer.take() {
            let lanes = (0..buffer::LANES).filter(|lane| request.active >> lane & 1 != 0);
            let answered = lanes.into_iter().try_for_each(|lane| {
                let slots = buffer.slots(request.packet, lane);
                let answer = services.answer(request.service, &slots, &self.memory, &|text| print(text))?;
                buffer.answer(request.packet, lane, answer);
                Ok(())
            });
            match answered {
                Ok(()) => buffer.done(request.packet),
                Err(why) => refused = Err(why),
            }
        }
        refused
    }

    /// What the kernel printed last, for a trap to carry.
    pub fn last_message(&self) -> String {
        self.services.lock().unwrap_or_else(PoisonError::into_inner).last_message()
    }
}

/// What the device library knows of a cooperative launch: one grid, and the counters its barriers spin on.
struct Grid {
    memory: Arc<Memory>,
    words: Vec<AtomicU64>,
}

impl Grid {
    fn new(memory: &Arc<Memory>, launch: &Launch) -> Grid {
        let product = |n: [u32; 3]| n.into_iter().map(u64::from).product::<u64>();
        let groups = product(launch.grid);
        let mut words = vec![0u64; 8];
        let start = words.as_ptr() as u64;
        // The counter of several grids; this grid's number and how many there are; work-items before this grid and of all.
        words[0] = start + 48;
        words[1] = 1 << 32;
        words[3] = groups * product(launch.block);
        // Words 4 and 6 count arrivals; between them, the number of groups.
        words[5] = groups & 0xffff_ffff;
        // SAFETY: `drop` unregisters the range before the vector is freed, and the host accesses it through atomics only.
        unsafe { memory.register(Allocation { start, bytes: 64, kind: MemoryKind::Host, read_only: false }) };
        Grid { memory: memory.clone(), words: buffer::shared(words) }
    }
}

impl Drop for Grid {
    fn drop(&mut self) {
        self.memory.unregister_unshared(self.words.as_ptr() as u64);
    }
}
