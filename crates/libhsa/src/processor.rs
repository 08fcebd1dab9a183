//! The packet processor: executes the packets of a queue in their order.

use std::sync::atomic::{AtomicU16, Ordering};

use warpwave_vgpu::exec::{Packet, launch_packet};
use warpwave_vgpu::fault::Fault;

use crate::queue::{PACKET_BYTES, QueueState};
use crate::runtime::{Runtime, lock};
use crate::signal::{satisfies, wait_until};
use crate::status::Status;
use crate::system::now;
use crate::types::{Handle, MemoryFaultEvent, Queue};
use crate::{agent, log};

/// Packet types: the low byte of the header.
mod packet_type {
    pub const VENDOR_SPECIFIC: u8 = 0;
    pub const INVALID: u8 = 1;
    pub const KERNEL_DISPATCH: u8 = 2;
    pub const BARRIER_AND: u8 = 3;
    pub const BARRIER_OR: u8 = 5;
}

/// The format of a vendor's packet that waits for a signal's value.
const BARRIER_VALUE: u8 = 2;
/// Where packets have their completion signal.
const COMPLETION: usize = 56;

/// The bytes of a packet.
struct Bytes([u8; PACKET_BYTES as usize]);

impl Bytes {
    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        std::array::from_fn(|index| self.0[at + index])
    }

    fn half(&self, at: usize) -> u32 {
        u16::from_le_bytes(self.array(at)).into()
    }

    fn word(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.array(at))
    }

    fn double(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.array(at))
    }
}

/// Why a packet could not be executed.
enum Failure {
    /// The queue was destroyed meanwhile.
    Stopped,
    /// The packet itself is wrong.
    Packet(String),
    Kernel(Fault),
}

/// Executes packets until the queue is destroyed, or one fails.
pub fn run(runtime: &'static Runtime, state: &QueueState) {
    let queue = state.queue();
    loop {
        let index = queue.read_index.load(Ordering::Relaxed);
        let at = queue.base + index % u64::from(queue.size) * PACKET_BYTES;
        // SAFETY: the header is in the ring, and programs write it atomically.
        let header = unsafe { &*(at as *const AtomicU16) };
        let is_written = index < queue.write_index.load(Ordering::Acquire) && header.load(Ordering::Acquire) as u8 != packet_type::INVALID;
        if state.is_stopped() {
            return;
        }
        if !is_written {
            state.wait_for_packets();
            continue;
        }
        // SAFETY: the packet is in the ring, and the program does not change it before it is executed.
        let bytes = Bytes(unsafe { (at as *const [u8; PACKET_BYTES as usize]).read() });
        let start = now();
        match execute(runtime, state, at, &bytes) {
            Ok(()) => {
                header.store(packet_type::INVALID.into(), Ordering::Release);
                queue.read_index.store(index + 1, Ordering::Release);
                runtime.complete(bytes.double(COMPLETION), start, now());
                runtime.release_retired();
            }
            Err(failure) => {
                state.stop();
                return report(runtime, state, failure);
            }
        }
    }
}

fn execute(runtime: &'static Runtime, state: &QueueState, at: u64, bytes: &Bytes) -> Result<(), Failure> {
    let value = |signal: Handle| runtime.signals.get(signal).map(|signal| signal.value.load(Ordering::Acquire));
    // A barrier's dependency is met by 0, by no signal, and by one that was destroyed.
    let is_met = |signal: Handle| value(signal).is_none_or(|value| value == 0);
    let dependencies = || (0..5).map(|index| bytes.double(8 + 8 * index));
    match bytes.0[0] {
        packet_type::KERNEL_DISPATCH => dispatch(runtime, state, at, bytes),
        packet_type::BARRIER_AND => wait(state, || dependencies().all(is_met)),
        packet_type::BARRIER_OR => wait(state, || {
            let mut given = dependencies().filter(|signal| *signal != 0).peekable();
            given.peek().is_none() || given.any(is_met)
        }),
        packet_type::VENDOR_SPECIFIC if bytes.0[2] == BARRIER_VALUE => {
            let (signal, compare, mask) = (bytes.double(8), bytes.double(16) as i64, bytes.double(24) as i64);
            wait(state, || value(signal).is_none_or(|value| satisfies(value & mask, bytes.word(32), compare)))
        }
        packet_type::VENDOR_SPECIFIC => {
            Err(Failure::Packet(format!("vendor-specific packet of format {}; expected {BARRIER_VALUE}", bytes.0[2])))
        }
        other => Err(Failure::Packet(format!("packet type {other}; expected a kernel dispatch or a barrier"))),
    }
}

fn wait(state: &QueueState, mut is_done: impl FnMut() -> bool) -> Result<(), Failure> {
    let mut is_met = false;
    wait_until(None, || {
        is_met = is_done();
        is_met || state.is_stopped()
    });
    if is_met { Ok(()) } else { Err(Failure::Stopped) }
}

fn dispatch(runtime: &'static Runtime, state: &QueueState, at: u64, bytes: &Bytes) -> Result<(), Failure> {
    let object = bytes.double(32);
    let found = runtime.executables.kernel(object, state.device);
    let (code_object, kernel) = found.ok_or_else(|| Failure::Packet(format!("kernel object {object:#x} is not loaded on this agent")))?;
    let kernel = &code_object.kernels[kernel];
    let packet = Packet {
        address: at,
        queue: state.address,
        kernarg: bytes.double(40),
        grid: std::array::from_fn(|axis| bytes.word(12 + 4 * axis)),
        block: std::array::from_fn(|axis| bytes.half(4 + 2 * axis)),
        lds: bytes.word(28),
        scratch: bytes.word(24),
        cooperative: state.is_cooperative,
    };
    log::debug(format_args!("kernel `{}`, {:?} workitems in groups of {:?}", kernel.name, packet.grid, packet.block));
    let stats = launch_packet(&code_object, kernel, &packet, &runtime.memory, runtime.config.limit);
    stats.map(|_| ()).map_err(Failure::Kernel)
}

/// Tells the program of a failure, as AMD's runtime does: memory faults to the system's callback, the rest to the queue's. A program
/// without one cannot go on.
fn report(runtime: &Runtime, state: &QueueState, failure: Failure) {
    let status = match &failure {
        Failure::Stopped => return,
        Failure::Packet(reason) => {
            log::warn(format_args!("invalid packet: {reason}"));
            Status::INVALID_PACKET_FORMAT
        }
        Failure::Kernel(fault) => {
            log::warn(format_args!("{fault}"));
            status_of(fault)
        }
    };
    // Copied, so that the callback may register another one.
    let (fault_callback, data) = *lock(&runtime.fault_callback);
    if let (Failure::Kernel(Fault::Memory { address, near, .. }), Some(callback)) = (&failure, fault_callback) {
        // The page is not there, or is read-only.
        let reasons = if near.is_some_and(|(_, distance)| distance == 0) { 2 } else { 1 };
        let event = MemoryFaultEvent { kind: 0, agent: agent::handle(state.device), address: *address, reasons };
        // SAFETY: the program registered the callback with its data.
        if unsafe { callback(&event, data as *mut _) } == 0 {
            return;
        }
    }
    match state.callback {
        // SAFETY: the program passed the callback with its data when it created the queue.
        Some(callback) => unsafe { callback(status.0, state.address as *mut Queue, state.data as *mut _) },
        None => std::process::abort(),
    }
}

fn status_of(fault: &Fault) -> Status {
    match fault {
        Fault::Memory { .. } => Status::MEMORY_FAULT,
        Fault::Lds { .. } | Fault::Scratch { .. } | Fault::Misaligned { .. } => Status::MEMORY_APERTURE_VIOLATION,
        Fault::Unsupported { .. } | Fault::Illegal { .. } => Status::ILLEGAL_INSTRUCTION,
        Fault::InvalidLaunch { .. } => Status::INVALID_PACKET_FORMAT,
        _ => Status::EXCEPTION,
    }
}
