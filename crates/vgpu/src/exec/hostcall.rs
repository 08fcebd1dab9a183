//! Hostcalls: requests of a running kernel to the host; and the memory of grid synchronization.

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

/// The host side of a launch's hostcalls.
pub struct Hostcall {
    memory: Arc<Memory>,
    buffer: Option<Buffer>,
    services: Mutex<Services>,
    grid: Option<Grid>,
    heap: u64,
}

impl Hostcall {
    /// Creates what the kernel's hidden arguments ask for. At most `waves` wavefronts are resident at a time.
    pub fn new(memory: &Arc<Memory>, kernel: &Kernel, launch: &Launch, waves: usize) -> Hostcall {
        let uses = |kind: &str| kernel.arguments.iter().any(|argument| argument.value_kind == kind);
        Hostcall {
            memory: memory.clone(),
            buffer: uses("hidden_hostcall_buffer").then(|| Buffer::new(memory, waves)),
            services: Mutex::default(),
            grid: (launch.cooperative && uses("hidden_multigrid_sync_arg")).then(|| Grid::new(memory, launch)),
            heap: if uses("hidden_heap_v1") { memory.heap() } else { 0 },
        }
    }

    /// Creates none of them, for a launch whose hidden arguments the caller wrote.
    pub fn absent(memory: &Arc<Memory>) -> Hostcall {
        Hostcall { memory: memory.clone(), buffer: None, services: Mutex::default(), grid: None, heap: 0 }
    }

    /// Returns the address of the hostcall buffer; 0 when the kernel has none.
    pub fn address(&self) -> u64 {
        self.buffer.as_ref().map_or(0, Buffer::address)
    }

    /// Returns the address of the multigrid sync argument; 0 when the launch is not cooperative.
    pub fn grid_sync(&self) -> u64 {
        self.grid.as_ref().map_or(0, |grid| grid.words.as_ptr() as u64)
    }

    /// Returns the address of the heap header for `malloc`; 0 when the kernel does not use it.
    pub fn heap(&self) -> u64 {
        self.heap
    }

    /// Serves pending hostcalls; any thread may call it. The error names an unsupported request, whose wavefront never continues.
    pub fn serve(&self, print: &(dyn Fn(&str) + Sync)) -> Result<(), String> {
        let Some(buffer) = self.buffer.as_ref().filter(|buffer| buffer.is_pending()) else { return Ok(()) };
        let mut services = self.services.lock().unwrap_or_else(PoisonError::into_inner);
        let mut failed = Ok(());
        for request in buffer.take() {
            let lanes = (0..buffer::LANES).filter(|lane| request.active >> lane & 1 != 0);
            let served = lanes.into_iter().try_for_each(|lane| {
                let slots = buffer.slots(request.packet, lane);
                let result = services.serve(request.service, &slots, &self.memory, &|text| print(text))?;
                buffer.set_result(request.packet, lane, result);
                Ok(())
            });
            match served {
                Ok(()) => buffer.complete(request.packet),
                Err(reason) => failed = Err(reason),
            }
        }
        failed
    }

    /// Returns what the kernel printed last, for the message of a trap.
    pub fn last_message(&self) -> String {
        self.services.lock().unwrap_or_else(PoisonError::into_inner).last_message()
    }
}

/// The device library's data of a cooperative launch: one grid, and the counters that its barriers spin on.
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
        // The multi-grid counter; this grid's index and the number of grids; workitems before this grid and in total.
        words[0] = start + 48;
        words[1] = 1 << 32;
        words[3] = groups * product(launch.block);
        // Words 4 and 6 count arrivals; between them is the number of workgroups.
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
