//! Streams: queues with a thread each, that run their work in order.
//!
//! Work is numbered as it is queued. A [`Mark`] is such a number: events, waits between streams and the null stream's rules are marks
//! that an item waits for before it runs. A mark is always of work that was queued before, so no two streams wait for each other.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::c_uint;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::capture::{self, Taking};
use super::code::{Code, Status};
use super::op::{Op, Work};
use super::runtime::{CURRENT, Device, lock, runtime};
use super::types::{Handle, HostFunction, Out, StreamCallback};

/// A thread without work ends after this long; the next work starts another.
const IDLE: Duration = Duration::from_millis(500);
/// `hipStreamNonBlocking`.
const NON_BLOCKING: c_uint = 1;
/// `hipStreamLegacy`.
const LEGACY: usize = 1;
/// `hipStreamPerThread`.
const PER_THREAD: usize = 2;
/// The least and the greatest priority, as AMD's drivers have them.
const PRIORITIES: (i32, i32) = (1, -1);

/// A queue of work.
pub(super) struct Stream {
    pub device: Arc<Device>,
    /// Not ordered with the null stream.
    pub non_blocking: bool,
    pub priority: i32,
    pub state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
pub(super) struct State {
    queue: VecDeque<Item>,
    /// How many items were queued, and how many of them are done.
    queued: u64,
    done: u64,
    worker: bool,
    /// The capture it takes part in.
    pub capture: Option<Taking>,
}

struct Item {
    after: Vec<Mark>,
    work: Work,
}

/// A stream's work up to a point.
#[derive(Clone)]
pub(super) struct Mark {
    stream: Arc<Stream>,
    number: u64,
}

thread_local! {
    /// Whether this thread runs a stream's work: it must not wait for any.
    static WORKER: Cell<bool> = const { Cell::new(false) };
}

impl Mark {
    pub fn is_done(&self) -> bool {
        lock(&self.stream.state).done >= self.number
    }

    /// Waits until the work is done. Refused within a host function, whose own stream it may be.
    pub fn wait(&self) -> Status {
        if self.is_done() {
            return Ok(());
        }
        if WORKER.get() {
            return Err(Code::NOT_SUPPORTED);
        }
        self.wait_anywhere();
        Ok(())
    }

    fn wait_anywhere(&self) {
        let mut state = lock(&self.stream.state);
        while state.done < self.number {
            state = self.stream.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Stream {
    pub fn new(device: &Arc<Device>, non_blocking: bool, priority: i32) -> Stream {
        Stream { device: device.clone(), non_blocking, priority, state: Mutex::default(), changed: Condvar::new() }
    }

    fn is_null(&self) -> bool {
        self.device.existing_null_stream().is_some_and(|null| std::ptr::eq(Arc::as_ptr(null), self))
    }

    /// All its work, unless it is done.
    pub fn pending(self: &Arc<Self>) -> Option<Mark> {
        let state = lock(&self.state);
        (state.done < state.queued).then(|| Mark { stream: self.clone(), number: state.queued })
    }

    /// What the null stream's rules make new work of this stream wait for.
    fn legacy_order(self: &Arc<Self>) -> Result<Vec<Mark>, Code> {
        if self.non_blocking {
            return Ok(Vec::new());
        }
        if !self.is_null() {
            return Ok(self.device.existing_null_stream().and_then(Stream::pending).into_iter().collect());
        }
        let others: Vec<_> = self.device.streams().into_iter().filter(|s| !s.non_blocking && !Arc::ptr_eq(s, self)).collect();
        for other in &others {
            if let Some(taking) = &lock(&other.state).capture {
                taking.capture.invalidate();
                return Err(Code::CAPTURE_IMPLICIT);
            }
        }
        Ok(others.iter().filter_map(Stream::pending).collect())
    }

    /// All work that a wait for this stream means.
    pub fn everything(self: &Arc<Self>) -> Result<Vec<Mark>, Code> {
        let mut marks = if self.is_null() { self.legacy_order()? } else { Vec::new() };
        marks.extend(self.pending());
        Ok(marks)
    }

    /// Queues an operation, or adds it to the graph that is captured.
    pub fn submit(self: &Arc<Self>, op: Op) -> Status {
        self.device.check()?;
        if let Some(taking) = &mut lock(&self.state).capture {
            return taking.add(op);
        }
        self.push(Work::Op(op), Vec::new()).map(drop)
    }

    /// Queues work after `marks`, whether or not the stream is captured.
    pub fn push(self: &Arc<Self>, work: Work, marks: Vec<Mark>) -> Result<Mark, Code> {
        let mut after = self.legacy_order()?;
        after.extend(marks);
        let mut state = lock(&self.state);
        if !state.worker {
            let stream = self.clone();
            let spawned = std::thread::Builder::new().name("vgpu stream".to_owned()).spawn(move || stream.work());
            spawned.map_err(|_| Code::OUT_OF_MEMORY)?;
            state.worker = true;
        }
        state.queued += 1;
        state.queue.push_back(Item { after, work });
        let number = state.queued;
        drop(state);
        self.changed.notify_all();
        Ok(Mark { stream: self.clone(), number })
    }

    /// The thread of the stream.
    fn work(self: Arc<Self>) {
        WORKER.set(true);
        CURRENT.set(i32::try_from(self.device.ordinal).unwrap_or(0));
        while let Some(item) = self.next() {
            item.after.iter().for_each(Mark::wait_anywhere);
            // The work and what it keeps alive are gone before it counts as done.
            item.work.run(&self.device);
            lock(&self.state).done += 1;
            self.changed.notify_all();
        }
    }

    fn next(&self) -> Option<Item> {
        let mut state = lock(&self.state);
        loop {
            if let Some(item) = state.queue.pop_front() {
                return Some(item);
            }
            let (again, timeout) = self.changed.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = again;
            if timeout.timed_out() && state.queue.is_empty() {
                state.worker = false;
                return None;
            }
        }
    }
}

/// The stream of a handle.
pub(super) fn of(handle: Handle) -> Result<Arc<Stream>, Code> {
    let runtime = runtime()?;
    match handle as usize {
        0 | LEGACY => Ok(runtime.current()?.null_stream()),
        PER_THREAD => per_thread(runtime.current()?),
        _ => runtime.streams.get(handle),
    }
}

fn per_thread(device: &Arc<Device>) -> Result<Arc<Stream>, Code> {
    thread_local! {
        static OWN: std::cell::RefCell<Vec<(u32, Arc<Stream>)>> = const { std::cell::RefCell::new(Vec::new()) };
    }
    OWN.with_borrow_mut(|own| {
        if let Some((_, stream)) = own.iter().find(|(ordinal, _)| *ordinal == device.ordinal) {
            return Ok(stream.clone());
        }
        let stream = Arc::new(Stream::new(device, false, 0));
        device.add_stream(&stream);
        own.push((device.ordinal, stream.clone()));
        Ok(stream)
    })
}

fn make(out: Out<Handle>, flags: c_uint, priority: i32) -> Status {
    let runtime = runtime()?;
    let device = runtime.working()?;
    if out.is_null() || flags > NON_BLOCKING {
        return Err(Code::INVALID_VALUE);
    }
    let (least, greatest) = PRIORITIES;
    let stream = Arc::new(Stream::new(device, flags == NON_BLOCKING, priority.clamp(greatest, least)));
    device.add_stream(&stream);
    out.put(runtime.streams.add(stream))
}

pub(super) fn create(out: Out<Handle>) -> Status {
    make(out, 0, 0)
}

pub(super) fn create_with_flags(out: Out<Handle>, flags: c_uint) -> Status {
    make(out, flags, 0)
}

pub(super) fn create_with_priority(out: Out<Handle>, flags: c_uint, priority: i32) -> Status {
    make(out, flags, priority)
}

/// What is queued still runs: the thread holds the stream until then.
pub(super) fn destroy(handle: Handle) -> Status {
    let stream = runtime()?.streams.remove(handle)?;
    if let Some(taking) = lock(&stream.state).capture.take() {
        taking.capture.invalidate();
    }
    Ok(())
}

/// Waiting for a stream that is captured, or asking it, ends the capture.
fn refuse_capture(stream: &Stream) -> Status {
    match &lock(&stream.state).capture {
        Some(taking) => {
            taking.capture.invalidate();
            Err(Code::CAPTURE_UNSUPPORTED)
        }
        None => Ok(()),
    }
}

pub(super) fn synchronize(handle: Handle) -> Status {
    let stream = of(handle)?;
    refuse_capture(&stream)?;
    stream.everything()?.iter().try_for_each(Mark::wait)?;
    stream.device.check()
}

pub(super) fn query(handle: Handle) -> Status {
    let stream = of(handle)?;
    refuse_capture(&stream)?;
    stream.device.check()?;
    if stream.everything()?.iter().all(Mark::is_done) { Ok(()) } else { Err(Code::NOT_READY) }
}

pub(super) fn priority(handle: Handle, out: Out<i32>) -> Status {
    out.put(of(handle)?.priority)
}

pub(super) fn flags(handle: Handle, out: Out<c_uint>) -> Status {
    out.put(c_uint::from(of(handle)?.non_blocking))
}

pub(super) fn device_of(handle: Handle, out: Out<i32>) -> Status {
    out.put(i32::try_from(of(handle)?.device.ordinal).unwrap_or(0))
}

pub(super) fn priority_range(least: Out<i32>, greatest: Out<i32>) -> Status {
    runtime()?.current()?;
    least.put_if_wanted(PRIORITIES.0);
    greatest.put_if_wanted(PRIORITIES.1);
    Ok(())
}

pub(super) fn wait_event(handle: Handle, event: Handle, flags: c_uint) -> Status {
    if flags > 1 {
        return Err(Code::INVALID_VALUE);
    }
    let (stream, event) = (of(handle)?, runtime()?.events.get(event)?);
    stream.device.check()?;
    if let Some(point) = event.captured() {
        return capture::join(&stream, &point);
    }
    if let Some(taking) = &lock(&stream.state).capture {
        // The graph would depend on work outside of it.
        taking.capture.invalidate();
        return Err(Code::CAPTURE_ISOLATION);
    }
    match event.mark() {
        Some(mark) if !mark.is_done() => stream.push(Work::Nothing, vec![mark]).map(drop),
        _ => Ok(()),
    }
}

pub(super) fn launch_host_function(handle: Handle, function: HostFunction, data: Handle) -> Status {
    let function = function.ok_or(Code::INVALID_VALUE)?;
    of(handle)?.submit(Op::Host { function, data: data as usize })
}

pub(super) fn add_callback(handle: Handle, callback: StreamCallback, data: Handle, flags: c_uint) -> Status {
    let callback = callback.ok_or(Code::INVALID_VALUE)?;
    if flags != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let stream = of(handle)?;
    refuse_capture(&stream)?;
    stream.push(Work::Callback { callback, stream: handle as usize, data: data as usize }, Vec::new()).map(drop)
}

/// Queues a stamp of the time; the mark of it.
pub(super) fn stamp(stream: &Arc<Stream>) -> Result<(Mark, Arc<OnceLock<Instant>>), Code> {
    let time = Arc::new(OnceLock::new());
    let mark = stream.push(Work::Stamp(time.clone()), Vec::new())?;
    Ok((mark, time))
}
