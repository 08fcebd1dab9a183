//! Executes schedules on host memory.

use std::collections::VecDeque;
use std::ops::Range;

use crate::Error;
use crate::datatype::{Op, Repr};
use crate::reduce::{Order, copy_elements, reduce_local};
use crate::schedule::{Recv, RecvAction, Send, Step};
use crate::transport::{Request, Transport};

/// Segments in flight in each direction.
const WINDOW: usize = 4;

/// Runs a rank's steps on buffers in host memory.
///
/// The send buffer is not copied up front: a range is read from it until the receive buffer holds something newer, which saves one pass
/// over the data.
pub struct HostExecutor<'a> {
    transport: Transport<'a>,
    repr: Repr,
    op: Op,
    recv_buf: *mut u8,
    send_buf: *const u8,
    /// Ranges whose current value is in the send buffer only.
    uncopied: Vec<Range<usize>>,
    /// Receive slots, kept between calls.
    scratch: &'a mut Vec<u8>,
    /// Elements per message, the same on all ranks.
    segment: usize,
}

impl<'a> HostExecutor<'a> {
    /// Creates an executor. `recv_buf` receives the result; `send_buf` holds this rank's elements and may be `recv_buf` itself.
    ///
    /// # Safety
    /// Both buffers must hold `count` elements of `repr` for the lifetime of this value, and be identical or disjoint; `op` must be
    /// allowed on the datatype.
    pub unsafe fn new(
        transport: Transport<'a>,
        (repr, op): (Repr, Op),
        (recv_buf, send_buf, count): (*mut u8, *const u8, usize),
        scratch: &'a mut Vec<u8>,
        segment: usize,
    ) -> HostExecutor<'a> {
        let mut uncopied = Vec::new();
        if send_buf != recv_buf {
            if repr.has_padding() {
                // SAFETY: guaranteed by the caller.
                unsafe { copy_elements(repr, recv_buf, send_buf, count) };
            } else {
                uncopied.push(0..count);
            }
        }
        HostExecutor { transport, repr, op, recv_buf, send_buf, uncopied, scratch, segment: segment.max(1) }
    }

    /// Executes all steps, which leaves the result in the receive buffer.
    pub fn run(mut self, steps: &[Step]) -> Result<(), Error> {
        for step in steps {
            self.step(step)?;
        }
        for range in std::mem::take(&mut self.uncopied) {
            self.copy_in(&range);
        }
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<(), Error> {
        let send_uncopied = step.send.as_ref().is_some_and(|send| self.is_uncopied(&send.range));
        let recv_uncopied = step.recv.as_ref().is_some_and(|recv| self.is_uncopied(&recv.range));
        if let Some(recv) = &step.recv {
            // A range that is sent and reduced in the same step is still read from the send buffer.
            self.mark_copied(&recv.range);
        }
        match step {
            Step { send: Some(send), recv: Some(recv) } if send.range.len() <= self.segment && recv.range.len() <= self.segment => {
                self.exchange(send, recv, send_uncopied, recv_uncopied)
            }
            _ => self.pipelined(step, send_uncopied, recv_uncopied),
        }
    }

    /// Exchanges one message in each direction.
    fn exchange(&mut self, send: &Send, recv: &Recv, send_uncopied: bool, recv_uncopied: bool) -> Result<(), Error> {
        let data = (self.source(&send.range, send_uncopied), self.bytes(&send.range), send.to);
        let bytes = self.bytes(&recv.range);
        let direct = self.is_direct(recv, recv_uncopied) && (send_uncopied || send.range != recv.range);
        let target = if direct { self.at(recv.range.start) } else { self.scratch(bytes) };
        // SAFETY: source and target are disjoint: the send buffer, the scratch memory, or different ranges of the receive buffer.
        unsafe { self.transport.sendrecv(data, (target, bytes, recv.from)) }?;
        self.apply(recv, &recv.range, target, recv_uncopied);
        Ok(())
    }

    /// Keeps segments in flight in both directions and reduces them as they arrive.
    fn pipelined(&mut self, step: &Step, send_uncopied: bool, recv_uncopied: bool) -> Result<(), Error> {
        let sends = step.send.as_ref().map(|send| segments(&send.range, self.segment)).unwrap_or_default();
        let recvs = step.recv.as_ref().map(|recv| segments(&recv.range, self.segment)).unwrap_or_default();
        // A range that is sent and replaced in the same step must have been sent before it is replaced.
        let in_place = match (&step.send, &step.recv) {
            (Some(send), Some(recv)) => send.range == recv.range && !send_uncopied,
            _ => false,
        };
        let direct = step.recv.as_ref().is_some_and(|recv| self.is_direct(recv, recv_uncopied)) && !in_place;
        let slot_bytes = self.segment.min(recvs.first().map_or(0, |first| first.len())) * self.repr.size();
        if !direct && !recvs.is_empty() {
            self.scratch(slot_bytes * WINDOW.min(recvs.len()));
        }
        let mut sends = SendQueue { ranges: &sends, started: 0, in_flight: VecDeque::new() };
        let mut posted: VecDeque<(Request, *mut u8)> = VecDeque::new();
        let mut next = 0;
        for (index, segment) in recvs.iter().enumerate() {
            let Some(recv) = &step.recv else { break };
            while next < recvs.len() && next < index + WINDOW {
                let range = &recvs[next];
                let target = if direct { self.at(range.start) } else { self.slot(slot_bytes * (next % WINDOW)) };
                // SAFETY: the target holds a segment and is not reused before its segment has been consumed.
                posted.push_back((unsafe { self.transport.irecv(target, self.bytes(range), recv.from) }?, target));
                next += 1;
            }
            while sends.test_oldest(&self.transport)? {}
            self.fill(&mut sends, step, send_uncopied)?;
            // Deadlock avoidance: no rank waits for a segment before it has started as many sends.
            while sends.started < sends.ranges.len() && sends.started <= index {
                sends.wait_oldest(&self.transport)?;
                self.fill(&mut sends, step, send_uncopied)?;
            }
            let Some((request, target)) = posted.pop_front() else { break };
            self.transport.wait(request)?;
            while in_place && sends.completed() <= index {
                self.fill(&mut sends, step, send_uncopied)?;
                sends.wait_oldest(&self.transport)?;
            }
            self.apply(recv, segment, target, recv_uncopied);
        }
        loop {
            self.fill(&mut sends, step, send_uncopied)?;
            if sends.in_flight.is_empty() {
                return Ok(());
            }
            sends.wait_oldest(&self.transport)?;
        }
    }

    /// Starts sends until the window is full.
    fn fill(&self, sends: &mut SendQueue, step: &Step, send_uncopied: bool) -> Result<(), Error> {
        let Some(send) = &step.send else { return Ok(()) };
        while sends.started < sends.ranges.len() && sends.in_flight.len() < WINDOW {
            let range = &sends.ranges[sends.started];
            // SAFETY: the range is unchanged until the send has completed, and all sends are waited for within the step.
            sends.in_flight.push_back(unsafe { self.transport.isend(self.source(range, send_uncopied), self.bytes(range), send.to) }?);
            sends.started += 1;
        }
        Ok(())
    }

    /// Returns whether elements can be received directly into the receive buffer: its content is not needed and has no padding.
    fn is_direct(&self, recv: &Recv, recv_uncopied: bool) -> bool {
        !self.repr.has_padding() && (recv.action == RecvAction::Replace || recv_uncopied)
    }

    /// Copies or reduces the elements received at `target` into `range` of the receive buffer.
    fn apply(&self, recv: &Recv, range: &Range<usize>, target: *const u8, recv_uncopied: bool) {
        let (inout, count) = (self.at(range.start), range.len());
        let direct = std::ptr::eq(target, inout);
        let order = match recv.action {
            RecvAction::Replace if direct => return,
            // SAFETY: the receive buffer and the scratch memory are disjoint and hold the range.
            RecvAction::Replace => return unsafe { copy_elements(self.repr, inout, target, count) },
            RecvAction::ReduceLeft => Order::InputFirst,
            RecvAction::ReduceRight => Order::InoutFirst,
        };
        if !recv_uncopied {
            // SAFETY: as above; the creator guarantees that `op` is allowed.
            return unsafe { reduce_local(self.repr, self.op, order, inout, target, count) };
        }
        if !direct {
            // SAFETY: as above.
            unsafe { copy_elements(self.repr, inout, target, count) };
        }
        // The received elements are in the receive buffer now, and this rank's own elements are the other operand.
        let flipped = if order == Order::InoutFirst { Order::InputFirst } else { Order::InoutFirst };
        // SAFETY: as above; the send buffer holds the range too and is disjoint.
        unsafe { reduce_local(self.repr, self.op, flipped, inout, self.send_buf.add(range.start * self.repr.size()), count) }
    }

    /// Returns whether all of `range` is uncopied. If only a part is, that part is copied first.
    fn is_uncopied(&mut self, range: &Range<usize>) -> bool {
        if self.uncopied.iter().any(|uncopied| uncopied.start <= range.start && range.end <= uncopied.end) {
            return true;
        }
        let overlap = |uncopied: &Range<usize>| uncopied.start.max(range.start)..uncopied.end.min(range.end);
        let overlaps: Vec<_> = self.uncopied.iter().map(overlap).filter(|overlap| !overlap.is_empty()).collect();
        for overlap in overlaps {
            self.copy_in(&overlap);
            self.mark_copied(&overlap);
        }
        false
    }

    /// Copies a range from the send buffer to the receive buffer.
    fn copy_in(&self, range: &Range<usize>) {
        // SAFETY: both buffers hold the range and are disjoint if any range is uncopied.
        unsafe { copy_elements(self.repr, self.at(range.start), self.send_buf.add(range.start * self.repr.size()), range.len()) }
    }

    fn mark_copied(&mut self, range: &Range<usize>) {
        let remainders =
            |uncopied: &Range<usize>| [uncopied.start..uncopied.end.min(range.start), uncopied.start.max(range.end)..uncopied.end];
        self.uncopied = self.uncopied.iter().flat_map(remainders).filter(|left| !left.is_empty()).collect();
    }

    fn source(&self, range: &Range<usize>, uncopied: bool) -> *const u8 {
        let base = if uncopied { self.send_buf } else { self.recv_buf.cast_const() };
        base.wrapping_add(range.start * self.repr.size())
    }

    fn at(&self, element: usize) -> *mut u8 {
        self.recv_buf.wrapping_add(element * self.repr.size())
    }

    fn bytes(&self, range: &Range<usize>) -> usize {
        range.len() * self.repr.size()
    }

    /// Returns scratch memory of at least `bytes` bytes.
    fn scratch(&mut self, bytes: usize) -> *mut u8 {
        if self.scratch.len() < bytes {
            self.scratch.resize(bytes, 0);
        }
        self.slot(0)
    }

    fn slot(&mut self, offset: usize) -> *mut u8 {
        self.scratch.as_mut_ptr().wrapping_add(offset)
    }
}

/// The sends of a step.
struct SendQueue<'a> {
    ranges: &'a [Range<usize>],
    started: usize,
    in_flight: VecDeque<Request>,
}

impl SendQueue<'_> {
    fn completed(&self) -> usize {
        self.started - self.in_flight.len()
    }

    fn wait_oldest(&mut self, transport: &Transport) -> Result<(), Error> {
        self.in_flight.pop_front().map_or(Ok(()), |request| transport.wait(request))
    }

    /// Removes the oldest send if it has completed, and returns whether it did.
    fn test_oldest(&mut self, transport: &Transport) -> Result<bool, Error> {
        let Some(oldest) = self.in_flight.front_mut() else { return Ok(false) };
        let done = transport.test(oldest)?;
        if done {
            self.in_flight.pop_front();
        }
        Ok(done)
    }
}

/// Splits a range into segments of one message each. Sender and receiver split a range identically.
pub fn segments(range: &Range<usize>, segment: usize) -> Vec<Range<usize>> {
    (range.start..range.end).step_by(segment).map(|start| start..range.end.min(start + segment)).collect()
}
