//! Executes schedules on device memory.
//!
//! A segment to send is copied to a pinned staging buffer and sent from there; a received segment takes the reverse path and is reduced
//! by a kernel. Device-to-host copies, messages, host-to-device copies and kernels of different segments overlap. A GPU-aware MPI
//! library gets device addresses instead, without staging.

use std::collections::VecDeque;
use std::ops::Range;

use warpwave_gpu::DevicePtr;

use crate::Error;
use crate::datatype::Repr;
use crate::gpu::{Kernels, PooledEvent, PooledStream, ScratchBuffer, StagingBuffer};
use crate::host::segments;
use crate::schedule::{Recv, RecvAction, Send, Step};
use crate::transport::{Request, Transport};

/// Segments in flight in each direction.
const WINDOW: usize = 4;

/// Runs a rank's steps on a working buffer in device memory.
pub struct DeviceExecutor<'a> {
    pub transport: Transport<'a>,
    pub repr: Repr,
    pub kernels: &'a Kernels,
    /// Stream for device-to-host copies.
    pub d2h: &'a PooledStream<'a>,
    /// Stream for host-to-device copies and kernels.
    pub h2d: &'a PooledStream<'a>,
    pub buffer: DevicePtr,
    /// Elements per message, the same on all ranks.
    pub segment: usize,
    /// The MPI library accepts device addresses.
    pub gpu_aware: bool,
}

/// Segment slots of one direction.
struct Slots<'a> {
    /// Pinned host memory; `None` with a GPU-aware MPI library.
    staging: Option<StagingBuffer<'a>>,
    /// Device memory for received segments.
    scratch: Option<ScratchBuffer<'a>>,
    /// Bytes per slot.
    bytes: usize,
}

impl Slots<'_> {
    fn on_host(&self, index: usize) -> *mut u8 {
        let base = self.staging.as_ref().map_or(std::ptr::null_mut(), |staging| staging.as_ptr().cast::<u8>());
        base.wrapping_add(index % WINDOW * self.bytes)
    }

    fn on_device(&self, index: usize) -> DevicePtr {
        self.scratch.as_ref().map_or(0, ScratchBuffer::address) + (index % WINDOW * self.bytes) as DevicePtr
    }
}

impl<'a> DeviceExecutor<'a> {
    /// Executes all steps, which leaves the result in `buffer` and both streams idle.
    ///
    /// # Safety
    /// `buffer` must hold all elements that the steps name, and nothing else may use it meanwhile.
    pub unsafe fn run(&self, steps: &[Step]) -> Result<(), Error> {
        let longest =
            |range: fn(&Step) -> Option<&Range<usize>>| steps.iter().filter_map(range).map(|range| range.len()).max().unwrap_or(0);
        let slots = |elements: usize, scratch: bool| -> Result<Slots<'a>, Error> {
            let bytes = elements.min(self.segment) * self.repr.size();
            Ok(Slots {
                staging: if self.gpu_aware { None } else { Some(self.h2d.staging(bytes * WINDOW)?) },
                scratch: if scratch { Some(self.h2d.scratch(bytes * WINDOW)?) } else { None },
                bytes,
            })
        };
        let send_slots = slots(longest(|step| step.send.as_ref().map(|send| &send.range)), false)?;
        let recv_slots = slots(longest(|step| step.recv.as_ref().map(|recv| &recv.range)), true)?;
        // Work enqueued before, by the program or on this stream, must be visible to MPI and to the other stream.
        self.h2d.record_event()?.synchronize()?;
        for step in steps {
            self.step(step, &send_slots, &recv_slots)?;
        }
        Ok(())
    }

    fn step(&self, step: &Step, send_slots: &Slots, recv_slots: &Slots) -> Result<(), Error> {
        let mut sends = step.send.as_ref().map(|send| SendQueue::new(send, self.segment));
        let mut recvs = step.recv.as_ref().map(|recv| RecvQueue::new(recv, self.segment));
        let in_place = matches!((&step.send, &step.recv), (Some(send), Some(recv)) if send.range == recv.range);
        loop {
            let mut progressed = false;
            if let Some(sends) = &mut sends {
                progressed |= sends.advance(self, send_slots)?;
            }
            if let Some(recvs) = &mut recvs {
                // A range that is sent and reduced in the same step must have been read before it changes.
                let writable = sends.as_ref().filter(|_| in_place).map_or(usize::MAX, |sends| sends.read(self.gpu_aware));
                progressed |= recvs.advance(self, recv_slots, writable)?;
            }
            if sends.as_ref().is_none_or(SendQueue::is_done) && recvs.as_ref().is_none_or(RecvQueue::is_done) {
                return Ok(());
            }
            if !progressed && self.transport.oversubscribed {
                std::thread::yield_now();
            } else if !progressed {
                std::hint::spin_loop();
            }
        }
    }

    fn at(&self, element: usize) -> DevicePtr {
        self.buffer + (element * self.repr.size()) as DevicePtr
    }

    fn bytes(&self, range: &Range<usize>) -> usize {
        range.len() * self.repr.size()
    }
}

/// The sends of a step: segments are copied to the host in order, then sent in order.
struct SendQueue<'s> {
    to: usize,
    segments: Vec<Range<usize>>,
    /// Events of copies to the host; `None` with a GPU-aware MPI library.
    copies: VecDeque<Option<PooledEvent<'s>>>,
    in_flight: VecDeque<Request>,
    /// Segments whose copy was started.
    started: usize,
}

impl<'s> SendQueue<'s> {
    fn new(send: &Send, segment: usize) -> SendQueue<'s> {
        SendQueue { to: send.to, segments: segments(&send.range, segment), copies: VecDeque::new(), in_flight: VecDeque::new(), started: 0 }
    }

    fn is_done(&self) -> bool {
        self.started == self.segments.len() && self.copies.is_empty() && self.in_flight.is_empty()
    }

    /// Returns the number of segments that have been read from the buffer.
    fn read(&self, gpu_aware: bool) -> usize {
        self.started - self.copies.len() - if gpu_aware { self.in_flight.len() } else { 0 }
    }

    /// Starts and completes what it can without waiting, and returns whether anything changed.
    fn advance(&mut self, executor: &'s DeviceExecutor, slots: &Slots) -> Result<bool, Error> {
        let mut progressed = false;
        while self.started < self.segments.len() && self.copies.len() + self.in_flight.len() < WINDOW {
            let range = &self.segments[self.started];
            let copied = if executor.gpu_aware {
                None
            } else {
                let slot = slots.on_host(self.started).cast();
                // SAFETY: the slot is free, and the buffer holds the range; the event tells when the copy has completed.
                unsafe { executor.d2h.copy_to_host(slot, executor.at(range.start), executor.bytes(range)) }?;
                Some(executor.d2h.record_event()?)
            };
            self.copies.push_back(copied);
            self.started += 1;
            progressed = true;
        }
        while let Some(copied) = self.copies.front() {
            if let Some(copied) = copied
                && !copied.is_done()?
            {
                break;
            }
            let index = self.started - self.copies.len();
            let range = &self.segments[index];
            let data = if executor.gpu_aware { executor.at(range.start) as *const u8 } else { slots.on_host(index).cast_const() };
            // SAFETY: the slot, or the range of the buffer, is unchanged until the request has completed.
            self.in_flight.push_back(unsafe { executor.transport.isend(data, executor.bytes(range), self.to) }?);
            self.copies.pop_front();
            progressed = true;
        }
        while let Some(request) = self.in_flight.front_mut() {
            if !executor.transport.test(request)? {
                break;
            }
            self.in_flight.pop_front();
            progressed = true;
        }
        Ok(progressed)
    }
}

/// The receives of a step: segments are received, copied to the device and reduced in order.
struct RecvQueue<'s> {
    from: usize,
    action: RecvAction,
    segments: Vec<Range<usize>>,
    /// Posted receives.
    posted: VecDeque<Request>,
    /// The oldest posted receive has completed.
    arrived: bool,
    /// Events of reductions.
    reductions: VecDeque<PooledEvent<'s>>,
    /// Segments whose receive was posted.
    started: usize,
}

impl<'s> RecvQueue<'s> {
    fn new(recv: &Recv, segment: usize) -> RecvQueue<'s> {
        RecvQueue {
            from: recv.from,
            action: recv.action,
            segments: segments(&recv.range, segment),
            posted: VecDeque::new(),
            arrived: false,
            reductions: VecDeque::new(),
            started: 0,
        }
    }

    fn is_done(&self) -> bool {
        self.started == self.segments.len() && self.posted.is_empty() && self.reductions.is_empty()
    }

    /// As [`SendQueue::advance`]. Only the first `writable` segments of the buffer may be changed.
    fn advance(&mut self, executor: &'s DeviceExecutor, slots: &Slots, writable: usize) -> Result<bool, Error> {
        let mut progressed = false;
        while self.started < self.segments.len() && self.posted.len() + self.reductions.len() < WINDOW {
            let target = if executor.gpu_aware { slots.on_device(self.started) as *mut u8 } else { slots.on_host(self.started) };
            let bytes = executor.bytes(&self.segments[self.started]);
            // SAFETY: the slot is unused until its segment has been reduced.
            self.posted.push_back(unsafe { executor.transport.irecv(target, bytes, self.from) }?);
            self.started += 1;
            progressed = true;
        }
        loop {
            let index = self.started - self.posted.len();
            let Some(request) = self.posted.front_mut() else { break };
            self.arrived = self.arrived || executor.transport.test(request)?;
            if !self.arrived || index >= writable {
                break;
            }
            let range = &self.segments[index];
            let (inout, bytes) = (executor.at(range.start), executor.bytes(range));
            let (stream, staged, slot) = (executor.h2d, slots.on_host(index).cast(), slots.on_device(index));
            // SAFETY: the slots and the buffer hold the range; the event tells when the slots are free again.
            unsafe {
                if self.action == RecvAction::Replace && !executor.gpu_aware && !executor.repr.has_padding() {
                    stream.copy_from_host(inout, staged, bytes)?;
                } else {
                    if !executor.gpu_aware {
                        stream.copy_from_host(slot, staged, bytes)?;
                    }
                    stream.apply(executor.kernels, inout, slot, range.len(), self.action)?;
                }
            }
            self.reductions.push_back(stream.record_event()?);
            self.posted.pop_front();
            self.arrived = false;
            progressed = true;
        }
        while let Some(reduced) = self.reductions.front() {
            if !reduced.is_done()? {
                break;
            }
            self.reductions.pop_front();
            progressed = true;
        }
        Ok(progressed)
    }
}
