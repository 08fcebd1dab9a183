//! Carrying out steps on device memory.
//!
//! A segment that is sent goes to page-locked memory and from there to the MPI; one that is received goes the other way, and a kernel
//! combines it. Copies down, messages, copies up and kernels of different segments overlap. An MPI that takes device addresses itself
//! is given them, without the detour.

use std::collections::VecDeque;
use std::ops::Range;

use warpwave_gpu::DevicePtr;

use crate::Failure;
use crate::element::Repr;
use crate::gpu::{Kernels, Lane, Mark, Scratch, Staging};
use crate::host::segments;
use crate::schedule::{Receive, Send, Step, Take};
use crate::wire::{Request, Wire};

/// Segments under way in each direction.
const WINDOW: usize = 4;

/// A rank's working buffer on a device.
pub struct OnDevice<'a> {
    pub wire: Wire<'a>,
    pub repr: Repr,
    pub kernels: &'a Kernels,
    /// For copies to the host.
    pub down: &'a Lane<'a>,
    /// For copies from the host, and kernels.
    pub up: &'a Lane<'a>,
    pub own: DevicePtr,
    /// Elements in a message; all ranks of a call have the same.
    pub segment: usize,
    /// The MPI takes device addresses.
    pub aware: bool,
}

/// Room for the segments of one direction.
struct Slots<'a> {
    /// On the host; none where the MPI takes device addresses.
    staging: Option<Staging<'a>>,
    /// On the device, for what is combined.
    scratch: Option<Scratch<'a>>,
    bytes: usize,
}

impl Slots<'_> {
    fn on_host(&self, index: usize) -> *mut u8 {
        let base = self.staging.as_ref().map_or(std::ptr::null_mut(), |staging| staging.as_ptr().cast::<u8>());
        base.wrapping_add(index % WINDOW * self.bytes)
    }

    fn on_device(&self, index: usize) -> DevicePtr {
        self.scratch.as_ref().map_or(0, Scratch::address) + (index % WINDOW * self.bytes) as DevicePtr
    }
}

impl<'a> OnDevice<'a> {
    /// Carries out all steps; the result is in `own` then, and the lanes have nothing more to do.
    ///
    /// # Safety
    /// `own` must hold all elements that the steps name, and be the only use of that memory for the while.
    pub unsafe fn run(&self, steps: &[Step]) -> Result<(), Failure> {
        let longest = |half: fn(&Step) -> Option<&Range<usize>>| steps.iter().filter_map(half).map(|range| range.len()).max().unwrap_or(0);
        let slots = |elements: usize, scratch: bool| -> Result<Slots<'a>, Failure> {
            let bytes = elements.min(self.segment) * self.repr.size();
            Ok(Slots {
                staging: if self.aware { None } else { Some(self.up.staging(bytes * WINDOW)?) },
                scratch: if scratch { Some(self.up.scratch(bytes * WINDOW)?) } else { None },
                bytes,
            })
        };
        let sends = slots(longest(|step| step.send.as_ref().map(|send| &send.range)), false)?;
        let receives = slots(longest(|step| step.receive.as_ref().map(|receive| &receive.range)), true)?;
        // What was queued before, by the program or on one lane, is there for the MPI and for the other.
        self.up.mark()?.synchronize()?;
        for step in steps {
            self.step(step, &sends, &receives)?;
        }
        Ok(())
    }

    fn step(&self, step: &Step, send_slots: &Slots, receive_slots: &Slots) -> Result<(), Failure> {
        let mut sending = step.send.as_ref().map(|send| Sending::new(send, self.segment));
        let mut receiving = step.receive.as_ref().map(|receive| Receiving::new(receive, self.segment));
        let same = matches!((&step.send, &step.receive), (Some(send), Some(receive)) if send.range == receive.range);
        loop {
            let mut moved = false;
            if let Some(sending) = &mut sending {
                moved |= sending.advance(self, send_slots)?;
            }
            if let Some(receiving) = &mut receiving {
                // What is sent and combined in one step must have been copied before it changes.
                let free = sending.as_ref().filter(|_| same).map_or(usize::MAX, |sending| sending.gone(self.aware));
                moved |= receiving.advance(self, receive_slots, free)?;
            }
            if sending.as_ref().is_none_or(Sending::is_done) && receiving.as_ref().is_none_or(Receiving::is_done) {
                return Ok(());
            }
            if !moved && self.wire.crowded {
                std::thread::yield_now();
            } else if !moved {
                std::hint::spin_loop();
            }
        }
    }

    fn at(&self, element: usize) -> DevicePtr {
        self.own + (element * self.repr.size()) as DevicePtr
    }

    fn bytes(&self, range: &Range<usize>) -> usize {
        range.len() * self.repr.size()
    }
}

/// The sends of a step: copied down in order, then sent in order.
struct Sending<'s> {
    to: usize,
    segments: Vec<Range<usize>>,
    copying: VecDeque<Option<Mark<'s>>>,
    flying: VecDeque<Request>,
    /// Segments whose copy has begun.
    begun: usize,
}

impl<'s> Sending<'s> {
    fn new(send: &Send, segment: usize) -> Sending<'s> {
        Sending { to: send.to, segments: segments(&send.range, segment), copying: VecDeque::new(), flying: VecDeque::new(), begun: 0 }
    }

    fn is_done(&self) -> bool {
        self.begun == self.segments.len() && self.copying.is_empty() && self.flying.is_empty()
    }

    /// Segments that are no longer read from the buffer.
    fn gone(&self, aware: bool) -> usize {
        self.begun - self.copying.len() - if aware { self.flying.len() } else { 0 }
    }

    fn advance(&mut self, on: &'s OnDevice, slots: &Slots) -> Result<bool, Failure> {
        let mut moved = false;
        while self.begun < self.segments.len() && self.copying.len() + self.flying.len() < WINDOW {
            let range = &self.segments[self.begun];
            let mark = if on.aware {
                None
            } else {
                // SAFETY: the slot is free, and the buffer holds the range; the mark tells when the copy is done.
                unsafe { on.down.to_host(slots.on_host(self.begun).cast(), on.at(range.start), on.bytes(range)) }?;
                Some(on.down.mark()?)
            };
            self.copying.push_back(mark);
            self.begun += 1;
            moved = true;
        }
        while let Some(mark) = self.copying.front() {
            if let Some(mark) = mark
                && !mark.is_done()?
            {
                break;
            }
            let index = self.begun - self.copying.len();
            let range = &self.segments[index];
            let data = if on.aware { on.at(range.start) as *const u8 } else { slots.on_host(index).cast_const() };
            // SAFETY: the slot, or the range of the buffer, stays as it is until the request is through.
            self.flying.push_back(unsafe { on.wire.send(data, on.bytes(range), self.to) }?);
            self.copying.pop_front();
            moved = true;
        }
        while let Some(request) = self.flying.front_mut() {
            if !on.wire.is_done(request)? {
                break;
            }
            self.flying.pop_front();
            moved = true;
        }
        Ok(moved)
    }
}

/// The receives of a step: taken in order, copied up and combined in order.
struct Receiving<'s> {
    from: usize,
    take: Take,
    segments: Vec<Range<usize>>,
    coming: VecDeque<Request>,
    /// Whether the oldest that is coming has come.
    here: bool,
    taking: VecDeque<Mark<'s>>,
    /// Segments that were asked for.
    begun: usize,
}

impl<'s> Receiving<'s> {
    fn new(receive: &Receive, segment: usize) -> Receiving<'s> {
        Receiving {
            from: receive.from,
            take: receive.take,
            segments: segments(&receive.range, segment),
            coming: VecDeque::new(),
            here: false,
            taking: VecDeque::new(),
            begun: 0,
        }
    }

    fn is_done(&self) -> bool {
        self.begun == self.segments.len() && self.coming.is_empty() && self.taking.is_empty()
    }

    /// `free`: segments of the buffer that may be changed.
    fn advance(&mut self, on: &'s OnDevice, slots: &Slots, free: usize) -> Result<bool, Failure> {
        let mut moved = false;
        while self.begun < self.segments.len() && self.coming.len() + self.taking.len() < WINDOW {
            let room = if on.aware { slots.on_device(self.begun) as *mut u8 } else { slots.on_host(self.begun) };
            // SAFETY: the slot is free until its segment was taken.
            self.coming.push_back(unsafe { on.wire.receive(room, on.bytes(&self.segments[self.begun]), self.from) }?);
            self.begun += 1;
            moved = true;
        }
        loop {
            let index = self.begun - self.coming.len();
            let Some(request) = self.coming.front_mut() else { break };
            self.here = self.here || on.wire.is_done(request)?;
            if !self.here || index >= free {
                break;
            }
            let range = &self.segments[index];
            let (own, bytes) = (on.at(range.start), on.bytes(range));
            // SAFETY: the slots and the buffer hold the range; the mark tells when they are free again.
            unsafe {
                if self.take == Take::Store && !on.aware && !on.repr.has_padding() {
                    on.up.from_host(own, slots.on_host(index).cast(), bytes)?;
                } else {
                    if !on.aware {
                        on.up.from_host(slots.on_device(index), slots.on_host(index).cast(), bytes)?;
                    }
                    on.up.combine(on.kernels, own, slots.on_device(index), range.len(), self.take)?;
                }
            }
            self.taking.push_back(on.up.mark()?);
            self.coming.pop_front();
            self.here = false;
            moved = true;
        }
        while let Some(mark) = self.taking.front() {
            if !mark.is_done()? {
                break;
            }
            self.taking.pop_front();
            moved = true;
        }
        Ok(moved)
    }
}
