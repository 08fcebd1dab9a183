//! Queues: rings of packets, each with a thread that executes them.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

use warpwave_vgpu::exec::Packet;
use warpwave_vgpu::memory::MemoryKind;

use crate::processor;
use crate::runtime::{Device, Runtime, lock, runtime, write};
use crate::signal::{kind, notify};
use crate::status::{Result, Status};
use crate::types::{Handle, Queue, QueueCallback};

/// The sizes of rings, in packets.
pub const MIN_SIZE: u32 = 64;
pub const MAX_SIZE: u32 = 1 << 17;
/// The most queues of the process.
pub const MAX_QUEUES: u32 = 128;
pub const PACKET_BYTES: u64 = 64;
/// A packet type that says a slot is empty.
const INVALID_PACKET: u16 = 1;
/// A ring is looked at again after this time, although a doorbell tells of each packet.
const POLL: Duration = Duration::from_millis(50);

/// `hsa_queue_type_t`.
mod queue_type {
    pub const COOPERATIVE: u32 = 2;
}

/// A queue.
pub struct QueueState {
    /// The `amd_queue_t`.
    pub address: u64,
    pub device: usize,
    pub is_cooperative: bool,
    /// The error callback and its data.
    pub callback: QueueCallback,
    pub data: usize,
    /// The mask of compute units, which has no effect.
    cu_mask: Mutex<Vec<u32>>,
    is_stopped: AtomicBool,
    has_rung: Mutex<bool>,
    rung: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl QueueState {
    /// Returns the queue in memory.
    pub fn queue(&self) -> &Queue {
        // SAFETY: the queue lives as long as its state, and its changing fields are atomics.
        unsafe { &*(self.address as *const Queue) }
    }

    /// Tells the thread that packets were written.
    pub fn ring(&self) {
        *lock(&self.has_rung) = true;
        self.rung.notify_all();
    }

    /// Returns whether the queue is destroyed or stopped by an error.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    /// Executes no more packets.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        self.ring();
        notify();
    }

    /// Waits for the doorbell.
    pub fn wait_for_packets(&self) {
        let mut has_rung = lock(&self.has_rung);
        if !*has_rung && !self.is_stopped() {
            has_rung = self.rung.wait_timeout(has_rung, POLL).unwrap_or_else(PoisonError::into_inner).0;
        }
        *has_rung = false;
    }
}

/// The queues of the process by address.
#[derive(Default)]
pub struct Queues {
    live: RwLock<HashMap<u64, Arc<QueueState>>>,
    created: AtomicU64,
}

impl Queues {
    /// Returns the queue at an address; `None` for other numbers and destroyed queues.
    pub fn get(&self, address: u64) -> Option<Arc<QueueState>> {
        self.live.read().unwrap_or_else(PoisonError::into_inner).get(&address).cloned()
    }
}

/// Returns the queue of a handle.
fn known(queue: u64) -> Result<Arc<QueueState>> {
    runtime()?.queues.get(queue).ok_or(Status::INVALID_QUEUE)
}

fn create(runtime: &'static Runtime, device: &Device, kind: u32, size: u32, state: QueueState) -> Result<Arc<QueueState>> {
    let (base, doorbell) = (state.address + size_of::<Queue>() as u64, state.queue().doorbell);
    let (group_aperture, private_aperture) = Packet::apertures();
    let queue = Queue {
        kind,
        features: 1,
        base,
        doorbell,
        size,
        reserved: 0,
        id: runtime.queues.created.fetch_add(1, Ordering::Relaxed),
        reserved1: [0; 4],
        write_index: AtomicU64::new(0),
        group_aperture,
        private_aperture,
        max_cu_id: device.model.compute_units - 1,
        max_wave_id: device.model.waves_per_simd * warpwave_vgpu::hip::model::SIMDS - 1,
        legacy: [0; 12],
        read_index: AtomicU64::new(0),
        read_index_offset: std::mem::offset_of!(Queue, read_index) as u32,
        scratch: [0; 10],
        // 64-bit pointers, profiling.
        properties: 1 << 1 | 1 << 3,
        reserved3: [0; 2],
        inactive_signal: 0,
        reserved4: [0; 14],
    };
    // SAFETY: the memory was allocated for the queue and its ring, and nothing else refers to it yet.
    unsafe {
        (state.address as *mut Queue).write(queue);
        for index in 0..u64::from(size) {
            ((base + index * PACKET_BYTES) as *mut u16).write(INVALID_PACKET);
        }
    }
    let state = Arc::new(state);
    let own = state.clone();
    let thread = std::thread::Builder::new().name("hsa-queue".to_owned());
    // A queue that stopped would let the program wait for ever.
    let run = move || {
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| processor::run(runtime, &own))).is_err() {
            std::process::abort();
        }
    };
    let thread = thread.spawn(run).map_err(|_| Status::OUT_OF_RESOURCES)?;
    *lock(&state.thread) = Some(thread);
    Ok(state)
}

/// # Safety
/// `callback` must accept a queue and `data`, and `to` be null or writable.
#[allow(clippy::too_many_arguments)]
pub unsafe fn hsa_queue_create(
    agent: Handle,
    size: u32,
    kind: u32,
    callback: QueueCallback,
    data: *mut c_void,
    _scratch: u32,
    _lds: u32,
    to: *mut u64,
) -> Result {
    let runtime = runtime()?;
    let (index, device) = runtime.device(agent)?;
    if to.is_null() || !size.is_power_of_two() || !(MIN_SIZE..=MAX_SIZE).contains(&size) {
        return Err(Status::INVALID_ARGUMENT);
    }
    if kind > queue_type::COOPERATIVE {
        return Err(Status::INVALID_QUEUE_CREATION);
    }
    if runtime.queues.live.read().unwrap_or_else(PoisonError::into_inner).len() >= MAX_QUEUES as usize {
        return Err(Status::OUT_OF_RESOURCES);
    }
    let bytes = size_of::<Queue>() + size as usize * PACKET_BYTES as usize;
    let address = runtime.memory.allocate(bytes, MemoryKind::Host).ok_or(Status::OUT_OF_RESOURCES)?;
    // SAFETY: the memory was just allocated, and zeros are a queue.
    unsafe { (address as *mut u8).write_bytes(0, bytes) };
    let created = runtime.signals.create(runtime, kind::DOORBELL, 0, address).and_then(|doorbell| {
        // SAFETY: as above; nothing else refers to the queue yet.
        unsafe { (*(address as *mut Queue)).doorbell = doorbell };
        let state = QueueState {
            address,
            device: index,
            is_cooperative: kind == queue_type::COOPERATIVE,
            callback,
            data: data as usize,
            cu_mask: Mutex::default(),
            is_stopped: AtomicBool::new(false),
            has_rung: Mutex::new(false),
            rung: Condvar::new(),
            thread: Mutex::new(None),
        };
        create(runtime, device, kind, size, state).inspect_err(|_| {
            let _ = runtime.signals.destroy(doorbell);
        })
    });
    let state = created.inspect_err(|_| {
        runtime.memory.free(address);
    })?;
    runtime.queues.live.write().unwrap_or_else(PoisonError::into_inner).insert(address, state);
    // SAFETY: the caller's promise.
    unsafe { write(to, address) }
}

pub fn hsa_queue_destroy(queue: u64) -> Result {
    let runtime = runtime()?;
    let removed = runtime.queues.live.write().unwrap_or_else(PoisonError::into_inner).remove(&queue);
    let state = removed.ok_or(Status::INVALID_QUEUE)?;
    state.stop();
    let thread = lock(&state.thread).take();
    // A callback may destroy the queue that calls it, whose memory is then in use until the process ends.
    if let Some(thread) = thread.filter(|thread| thread.thread().id() != std::thread::current().id()) {
        let _ = thread.join();
        runtime.signals.destroy(state.queue().doorbell)?;
        runtime.memory.free(queue);
    }
    Ok(())
}

pub fn hsa_queue_inactivate(queue: u64) -> Result {
    known(queue).map(|state| state.stop())
}

pub fn load_read_index(queue: u64) -> u64 {
    known(queue).map_or(0, |state| state.queue().read_index.load(Ordering::Acquire))
}

pub fn load_write_index(queue: u64) -> u64 {
    known(queue).map_or(0, |state| state.queue().write_index.load(Ordering::Acquire))
}

pub fn store_write_index(queue: u64, value: u64) {
    let _ = known(queue).map(|state| state.queue().write_index.store(value, Ordering::Release));
}

pub fn add_write_index(queue: u64, value: u64) -> u64 {
    known(queue).map_or(0, |state| state.queue().write_index.fetch_add(value, Ordering::AcqRel))
}

pub fn cas_write_index(queue: u64, expected: u64, value: u64) -> u64 {
    known(queue).map_or(0, |state| {
        let exchanged = state.queue().write_index.compare_exchange(expected, value, Ordering::AcqRel, Ordering::Acquire);
        exchanged.unwrap_or_else(|old| old)
    })
}

/// The queue's thread owns the read index.
pub fn store_read_index(_queue: u64, _value: u64) {}

/// Packets are always timed.
pub fn hsa_amd_profiling_set_profiler_enabled(queue: u64, _enable: i32) -> Result {
    known(queue).map(|_| ())
}

pub fn hsa_amd_queue_set_priority(queue: u64, priority: u32) -> Result {
    known(queue)?;
    if priority <= 2 { Ok(()) } else { Err(Status::INVALID_ARGUMENT) }
}

/// # Safety
/// `mask` must have `bits / 32` elements.
pub unsafe fn hsa_amd_queue_cu_set_mask(queue: u64, bits: u32, mask: *const u32) -> Result {
    let state = known(queue)?;
    if !bits.is_multiple_of(32) || mask.is_null() && bits > 0 {
        return Err(Status::INVALID_ARGUMENT);
    }
    // SAFETY: the caller's promise.
    *lock(&state.cu_mask) = (0..bits as usize / 32).map(|index| unsafe { mask.add(index).read() }).collect();
    Ok(())
}

/// # Safety
/// `mask` must have room for `bits / 32` elements.
pub unsafe fn hsa_amd_queue_cu_get_mask(queue: u64, bits: u32, mask: *mut u32) -> Result {
    let state = known(queue)?;
    if bits == 0 || !bits.is_multiple_of(32) || mask.is_null() {
        return Err(Status::INVALID_ARGUMENT);
    }
    let known = lock(&state.cu_mask);
    for index in 0..bits as usize / 32 {
        // SAFETY: the caller's promise. Without a mask all compute units are enabled.
        unsafe { mask.add(index).write(known.get(index).copied().unwrap_or(if known.is_empty() { u32::MAX } else { 0 })) };
    }
    Ok(())
}
