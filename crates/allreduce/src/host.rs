//! Carrying out steps on host memory.

use std::collections::VecDeque;
use std::ops::Range;

use crate::Failure;
use crate::combine::{Order, combine, store};
use crate::element::{Op, Repr};
use crate::schedule::{Receive, Send, Step, Take};
use crate::wire::{Request, Wire};

/// Messages that may be under way in one direction.
const WINDOW: usize = 4;

/// A rank's working buffer in host memory.
pub struct Host<'a> {
    wire: Wire<'a>,
    repr: Repr,
    op: Op,
    own: *mut u8,
    /// The user's send buffer: what `fresh` names still lies there and nowhere else.
    origin: *const u8,
    fresh: Vec<Range<usize>>,
    /// Room for what is received, kept between calls.
    scratch: &'a mut Vec<u8>,
    /// Elements in a message; all ranks of a call have the same.
    segment: usize,
}

impl<'a> Host<'a> {
    /// `own` receives the result; `origin` holds this rank's elements, and may be `own` itself.
    ///
    /// # Safety
    /// Both must hold `count` elements of `repr` for the life of this value, and be the same or apart; `op` must be allowed on them.
    pub unsafe fn new(
        wire: Wire<'a>,
        (repr, op): (Repr, Op),
        (own, origin, count): (*mut u8, *const u8, usize),
        scratch: &'a mut Vec<u8>,
        segment: usize,
    ) -> Host<'a> {
        let mut fresh = Vec::new();
        if origin != own {
            if repr.has_padding() {
                // SAFETY: the caller's promise.
                unsafe { store(repr, own, origin, count) };
            } else {
                fresh.push(0..count);
            }
        }
        Host { wire, repr, op, own, origin, fresh, scratch, segment: segment.max(1) }
    }

    /// Carries out all steps; the result is in `own` then.
    pub fn run(mut self, steps: &[Step]) -> Result<(), Failure> {
        for step in steps {
            self.step(step)?;
        }
        for range in std::mem::take(&mut self.fresh) {
            self.settle(&range);
        }
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<(), Failure> {
        let from_origin = step.send.as_ref().is_some_and(|send| self.is_fresh(&send.range));
        let onto_fresh = step.receive.as_ref().is_some_and(|receive| self.is_fresh(&receive.range));
        if let Some(receive) = &step.receive {
            // What is sent and combined at once must not lose its origin before it is sent: it stays readable there.
            self.forget(&receive.range);
        }
        match step {
            Step { send: Some(send), receive: Some(receive) }
                if send.range.len() <= self.segment && receive.range.len() <= self.segment =>
            {
                self.small(send, receive, from_origin, onto_fresh)
            }
            _ => self.pipelined(step, from_origin, onto_fresh),
        }
    }

    /// One message each way.
    fn small(&mut self, send: &Send, receive: &Receive, from_origin: bool, onto_fresh: bool) -> Result<(), Failure> {
        let data = (self.source(&send.range, from_origin), self.bytes(&send.range), send.to);
        let bytes = self.bytes(&receive.range);
        let direct = self.is_direct(receive, onto_fresh) && (from_origin || send.range != receive.range);
        let room = if direct { self.at(receive.range.start) } else { self.room(bytes, 0) };
        // SAFETY: source and room are apart: the origin, the scratch memory, or different ranges of the buffer.
        unsafe { self.wire.exchange(data, (room, bytes, receive.from)) }?;
        self.take(receive, &receive.range, room, onto_fresh);
        Ok(())
    }

    /// Segments in flight both ways, combined as they come.
    fn pipelined(&mut self, step: &Step, from_origin: bool, onto_fresh: bool) -> Result<(), Failure> {
        let sends = step.send.as_ref().map(|send| segments(&send.range, self.segment)).unwrap_or_default();
        let receives = step.receive.as_ref().map(|receive| segments(&receive.range, self.segment)).unwrap_or_default();
        // What is sent and replaced in one step must be gone before it is replaced.
        let same = match (&step.send, &step.receive) {
            (Some(send), Some(receive)) => send.range == receive.range && !from_origin,
            _ => false,
        };
        let direct = step.receive.as_ref().is_some_and(|receive| self.is_direct(receive, onto_fresh)) && !same;
        let slot_bytes = self.segment.min(receives.first().map_or(0, |first| first.len())) * self.repr.size();
        if !direct && !receives.is_empty() {
            self.room(slot_bytes * WINDOW.min(receives.len()), 0);
        }
        let mut sends = Sends { ranges: &sends, started: 0, under_way: VecDeque::new() };
        let mut coming: VecDeque<(Request, *mut u8)> = VecDeque::new();
        let mut next = 0;
        for (index, segment) in receives.iter().enumerate() {
            let Some(receive) = &step.receive else { break };
            while next < receives.len() && next < index + WINDOW {
                let range = &receives[next];
                let room = if direct { self.at(range.start) } else { self.slot(slot_bytes * (next % WINDOW)) };
                // SAFETY: the room holds a segment, and is not used again before its segment was taken.
                coming.push_back((unsafe { self.wire.receive(room, self.bytes(range), receive.from) }?, room));
                next += 1;
            }
            while sends.oldest_is_done(&self.wire)? {}
            self.fill(&mut sends, step, from_origin)?;
            // Nobody waits for a segment before having sent as many: else ranks could wait for each other in a circle.
            while sends.started < sends.ranges.len() && sends.started <= index {
                sends.wait_oldest(&self.wire)?;
                self.fill(&mut sends, step, from_origin)?;
            }
            let Some((request, room)) = coming.pop_front() else { break };
            self.wire.wait(request)?;
            while same && sends.through() <= index {
                self.fill(&mut sends, step, from_origin)?;
                sends.wait_oldest(&self.wire)?;
            }
            self.take(receive, segment, room, onto_fresh);
        }
        loop {
            self.fill(&mut sends, step, from_origin)?;
            if sends.under_way.is_empty() {
                return Ok(());
            }
            sends.wait_oldest(&self.wire)?;
        }
    }

    /// Starts sends until as many as may be are under way.
    fn fill(&self, sends: &mut Sends, step: &Step, from_origin: bool) -> Result<(), Failure> {
        let Some(send) = &step.send else { return Ok(()) };
        while sends.started < sends.ranges.len() && sends.under_way.len() < WINDOW {
            let range = &sends.ranges[sends.started];
            // SAFETY: the range stays as it is until the send is through, and all sends are waited for within the step.
            sends.under_way.push_back(unsafe { self.wire.send(self.source(range, from_origin), self.bytes(range), send.to) }?);
            sends.started += 1;
        }
        Ok(())
    }

    /// Whether received elements may go straight to their place: then nothing there is needed, and every byte carries something.
    fn is_direct(&self, receive: &Receive, onto_fresh: bool) -> bool {
        !self.repr.has_padding() && (receive.take == Take::Store || onto_fresh)
    }

    /// What came for `range` lies at `room`: combines or stores it.
    fn take(&self, receive: &Receive, range: &Range<usize>, room: *const u8, onto_fresh: bool) {
        let (own, count) = (self.at(range.start), range.len());
        let in_place = std::ptr::eq(room, own);
        let order = match receive.take {
            Take::Store if in_place => return,
            // SAFETY: `own` and the scratch memory are apart and hold the range.
            Take::Store => return unsafe { store(self.repr, own, room, count) },
            Take::Before => Order::OtherFirst,
            Take::After => Order::OwnFirst,
        };
        if !onto_fresh {
            // SAFETY: as above; `op` is allowed, says who made this value.
            return unsafe { combine(self.repr, self.op, order, own, room, count) };
        }
        if !in_place {
            // SAFETY: as above.
            unsafe { store(self.repr, own, room, count) };
        }
        // What came is in place now, and this rank's own elements are the other operand.
        let flipped = if order == Order::OwnFirst { Order::OtherFirst } else { Order::OwnFirst };
        // SAFETY: as above; the origin holds the range too, apart from `own`.
        unsafe { combine(self.repr, self.op, flipped, own, self.origin.add(range.start * self.repr.size()), count) }
    }

    /// Whether all of `range` lies in the origin alone. A range of which a part does is settled: it is in the buffer then.
    fn is_fresh(&mut self, range: &Range<usize>) -> bool {
        if self.fresh.iter().any(|fresh| fresh.start <= range.start && range.end <= fresh.end) {
            return true;
        }
        let partly: Vec<_> =
            self.fresh.iter().map(|fresh| fresh.start.max(range.start)..fresh.end.min(range.end)).filter(|both| !both.is_empty()).collect();
        for both in partly {
            self.settle(&both);
            self.forget(&both);
        }
        false
    }

    /// Copies a range from the origin.
    fn settle(&self, range: &Range<usize>) {
        // SAFETY: both hold the range and are apart where anything is fresh.
        unsafe { store(self.repr, self.at(range.start), self.origin.add(range.start * self.repr.size()), range.len()) }
    }

    fn forget(&mut self, range: &Range<usize>) {
        let halves = |fresh: &Range<usize>| [fresh.start..fresh.end.min(range.start), fresh.start.max(range.end)..fresh.end];
        self.fresh = self.fresh.iter().flat_map(halves).filter(|left| !left.is_empty()).collect();
    }

    fn source(&self, range: &Range<usize>, from_origin: bool) -> *const u8 {
        let base = if from_origin { self.origin } else { self.own.cast_const() };
        base.wrapping_add(range.start * self.repr.size())
    }

    fn at(&self, element: usize) -> *mut u8 {
        self.own.wrapping_add(element * self.repr.size())
    }

    fn bytes(&self, range: &Range<usize>) -> usize {
        range.len() * self.repr.size()
    }

    /// Scratch memory of at least `bytes`, and the address of `at` in it.
    fn room(&mut self, bytes: usize, at: usize) -> *mut u8 {
        if self.scratch.len() < bytes {
            self.scratch.resize(bytes, 0);
        }
        self.slot(at)
    }

    fn slot(&mut self, at: usize) -> *mut u8 {
        self.scratch.as_mut_ptr().wrapping_add(at)
    }
}

/// The sends of a step.
struct Sends<'a> {
    ranges: &'a [Range<usize>],
    started: usize,
    under_way: VecDeque<Request>,
}

impl Sends<'_> {
    fn through(&self) -> usize {
        self.started - self.under_way.len()
    }

    fn wait_oldest(&mut self, wire: &Wire) -> Result<(), Failure> {
        self.under_way.pop_front().map_or(Ok(()), |request| wire.wait(request))
    }

    /// Whether the oldest is through; it is done with then.
    fn oldest_is_done(&mut self, wire: &Wire) -> Result<bool, Failure> {
        let Some(oldest) = self.under_way.front_mut() else { return Ok(false) };
        let done = wire.is_done(oldest)?;
        if done {
            self.under_way.pop_front();
        }
        Ok(done)
    }
}

/// The pieces of a range that make one message each: both ends of a message cut alike.
pub fn segments(range: &Range<usize>, segment: usize) -> Vec<Range<usize>> {
    (range.start..range.end).step_by(segment).map(|start| start..range.end.min(start + segment)).collect()
}
