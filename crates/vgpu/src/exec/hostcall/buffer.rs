//! The hostcall buffer, in the layout of the device library.
//!
//! A wavefront pops a packet from the free stack, fills it, pushes it onto the ready stack, and waits until the host clears the packet's
//! ready bit. Stacks link packets by index, with a tag above it that changes whenever the packet is freed. An empty ready stack is 0.
//! The device library does not check for an empty free stack: there must be a packet for every resident wavefront.
//!
//! The kernel can overwrite everything in the buffer, so the host computes offsets from checked packet indices only.

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::memory::{Allocation, Memory, MemoryKind};

/// Lanes of a packet.
pub const LANES: usize = 64;
/// Slots of a lane.
pub const SLOTS: usize = 8;

// Word offsets of the buffer's header.
const HEADERS: usize = 0;
const PAYLOADS: usize = 1;
const DOORBELL: usize = 2;
const FREE: usize = 3;
const READY: usize = 4;
const MASK: usize = 5;
/// The doorbell signal: a kind and a value, without a mailbox, so that ringing it is only an addition.
const SIGNAL: usize = 8;
const FIRST_HEADER: usize = 16;
/// Words of a packet header: next packet, active lanes, service and ready bit.
const HEADER: usize = 3;
/// The ready bit, above the service number.
const READY_BIT: u64 = 1 << 32;

/// The hostcall buffer of a launch.
pub struct Buffer {
    memory: Arc<Memory>,
    words: Vec<AtomicU64>,
    packets: usize,
    mask: u64,
    first_payload: usize,
}

/// A pending packet.
pub struct Request {
    pub packet: usize,
    pub service: u32,
    pub active: u64,
}

impl Buffer {
    /// Creates a buffer of `packets` free packets.
    pub fn new(memory: &Arc<Memory>, packets: usize) -> Buffer {
        let packets = packets.max(1);
        let bits = packets.next_power_of_two().trailing_zeros().max(1);
        let mask = (1u64 << bits) - 1;
        let first_payload = (FIRST_HEADER + HEADER * packets).next_multiple_of(8);
        // Zeroed memory costs nothing until it is touched, and packets are used from the top of the stack.
        let mut words = vec![0u64; first_payload + packets * LANES * SLOTS];
        let start = words.as_mut_ptr() as u64;
        words[HEADERS] = start + 8 * FIRST_HEADER as u64;
        words[PAYLOADS] = start + 8 * first_payload as u64;
        words[DOORBELL] = start + 8 * SIGNAL as u64;
        words[MASK] = mask;
        // AMD_SIGNAL_KIND_USER.
        words[SIGNAL] = 1;
        let tag = mask + 1;
        for packet in 1..packets {
            words[FIRST_HEADER + HEADER * (packet - 1)] = tag | packet as u64;
        }
        words[FREE] = tag;
        let bytes = 8 * words.len() as u64;
        // SAFETY: `drop` unregisters the range before the vector is freed, and the host accesses it through atomics only.
        unsafe { memory.register(Allocation { start, bytes, kind: MemoryKind::Host, read_only: false }) };
        Buffer { memory: memory.clone(), words: shared(words), packets, mask, first_payload }
    }

    /// Returns the address that the kernel gets.
    pub fn address(&self) -> u64 {
        self.words.as_ptr() as u64
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        &self.words[at]
    }

    /// Returns whether a packet is pending.
    pub fn is_pending(&self) -> bool {
        self.word(READY).load(Ordering::Relaxed) != 0
    }

    /// Takes the pending packets, oldest first.
    pub fn take(&self) -> Vec<Request> {
        let mut next = self.word(READY).swap(0, Ordering::AcqRel);
        let mut out = Vec::new();
        // The kernel could have linked them into a cycle.
        while next != 0 && out.len() < self.packets {
            let packet = (next & self.mask) as usize;
            if packet >= self.packets {
                break;
            }
            let header = FIRST_HEADER + HEADER * packet;
            let active = self.word(header + 1).load(Ordering::Relaxed);
            let service = self.word(header + 2).load(Ordering::Relaxed) as u32;
            out.push(Request { packet, service, active });
            next = self.word(header).load(Ordering::Relaxed);
        }
        out.reverse();
        out
    }

    fn slot(&self, packet: usize, lane: usize) -> usize {
        self.first_payload + (packet * LANES + lane) * SLOTS
    }

    /// Returns a lane's arguments.
    pub fn slots(&self, packet: usize, lane: usize) -> [u64; SLOTS] {
        let at = self.slot(packet, lane);
        std::array::from_fn(|n| self.word(at + n).load(Ordering::Relaxed))
    }

    /// Writes a lane's return value.
    pub fn set_result(&self, packet: usize, lane: usize, value: u64) {
        self.word(self.slot(packet, lane)).store(value, Ordering::Relaxed);
    }

    /// Clears the ready bit, which lets the wavefront continue.
    pub fn complete(&self, packet: usize) {
        self.word(FIRST_HEADER + HEADER * packet + 2).fetch_and(!READY_BIT, Ordering::Release);
    }
}

/// Reinterprets words as atomics, because kernels may change them concurrently.
pub fn shared(words: Vec<u64>) -> Vec<AtomicU64> {
    let mut words = ManuallyDrop::new(words);
    // SAFETY: `AtomicU64` has the layout of `u64`, and `words` is not dropped.
    unsafe { Vec::from_raw_parts(words.as_mut_ptr().cast::<AtomicU64>(), words.len(), words.capacity()) }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.memory.unregister_unshared(self.address());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The wavefront's side: takes a packet and submits it.
    fn submit(buffer: &Buffer, service: u64, active: u64) -> (u64, usize) {
        let top = buffer.word(FREE).load(Ordering::Relaxed);
        let packet = (top & buffer.mask) as usize;
        let header = FIRST_HEADER + HEADER * packet;
        buffer.word(FREE).store(buffer.word(header).load(Ordering::Relaxed), Ordering::Relaxed);
        buffer.word(header + 1).store(active, Ordering::Relaxed);
        buffer.word(header + 2).store(service | READY_BIT, Ordering::Relaxed);
        buffer.word(header).store(buffer.word(READY).swap(top, Ordering::Relaxed), Ordering::Relaxed);
        (top, packet)
    }

    #[test]
    fn every_packet_is_usable_and_packets_are_taken_oldest_first() {
        for packets in [1, 2, 3, 64, 65] {
            let memory = Arc::new(Memory::new());
            let buffer = Buffer::new(&memory, packets);
            assert!(memory.find_range(buffer.address(), 8 * buffer.words.len() as u64).is_some());
            assert!(!buffer.is_pending() && buffer.take().is_empty());
            let submitted: Vec<(u64, usize)> = (0..packets).map(|n| submit(&buffer, 2, n as u64)).collect();
            assert!(submitted.iter().all(|(top, _)| *top != 0));
            assert_eq!(buffer.word(FREE).load(Ordering::Relaxed), 0);
            let taken = buffer.take();
            assert_eq!(taken.iter().map(|r| r.packet).collect::<Vec<_>>(), submitted.iter().map(|(_, packet)| *packet).collect::<Vec<_>>());
            assert!(taken.iter().enumerate().all(|(n, r)| r.service == 2 && r.active == n as u64));
            buffer.complete(0);
            assert_eq!(buffer.word(FIRST_HEADER + 2).load(Ordering::Relaxed), 2);
            drop(buffer);
            assert!(memory.allocations().is_empty());
        }
    }

    #[test]
    fn corrupted_stacks_are_ignored_from_the_first_invalid_packet() {
        let buffer = Buffer::new(&Arc::new(Memory::new()), 3);
        // Packet 3 does not exist.
        buffer.word(READY).store(7, Ordering::Relaxed);
        assert!(buffer.take().is_empty());
        // A packet that links to itself.
        buffer.word(FIRST_HEADER + HEADER).store(5, Ordering::Relaxed);
        buffer.word(READY).store(5, Ordering::Relaxed);
        assert_eq!(buffer.take().len(), 3);
        // The host ignores the header's offsets.
        for at in [HEADERS, PAYLOADS, DOORBELL, MASK] {
            buffer.word(at).store(u64::MAX, Ordering::Relaxed);
        }
        submit(&buffer, 1, 1);
        assert_eq!(buffer.take().len(), 1);
        assert_eq!(buffer.slots(2, 63), [0; SLOTS]);
    }
}
