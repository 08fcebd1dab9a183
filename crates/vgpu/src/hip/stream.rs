//! Streams: queues whose work runs in order on a thread each.
//!
//! Items are numbered as they are queued. A [`Marker`] is such a number: events, waits between streams, and the null stream's implicit
//! synchronization are markers that an item waits for before it runs. A marker always refers to work queued earlier, so streams cannot
//! deadlock.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::c_uint;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::capture::{self, CaptureState};
use super::error::{HipError, Status};
use super::runtime::{CURRENT, Device, lock, runtime};
use super::types::{Handle, HostFunction, Out, StreamCallback};
use super::work::{Operation, QueueItem};

/// A worker thread without work ends after this time; new work starts another one.
const IDLE: Duration = Duration::from_millis(500);
/// `hipStreamNonBlocking`.
const NON_BLOCKING: c_uint = 1;
/// `hipStreamLegacy`.
const LEGACY: usize = 1;
/// `hipStreamPerThread`.
const PER_THREAD: usize = 2;
/// The lowest and the highest priority, as in AMD's drivers.
const PRIORITIES: (i32, i32) = (1, -1);

/// A stream.
pub(super) struct Stream {
    pub device: Arc<Device>,
    /// Whether it does not synchronize with the null stream.
    pub non_blocking: bool,
    pub priority: i32,
    pub state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
pub(super) struct State {
    queue: VecDeque<Item>,
    /// Items queued so far, and how many of them are done.
    queued: u64,
    done: u64,
    worker: bool,
    /// The capture it takes part in.
    pub capture: Option<CaptureState>,
}

struct Item {
    after: Vec<Marker>,
    work: QueueItem,
}

/// A position in a stream's queue: everything queued so far.
#[derive(Clone)]
pub(super) struct Marker {
    stream: Arc<Stream>,
    number: u64,
}

thread_local! {
    /// Whether this thread runs a stream's work, and so must not wait for any.
    static WORKER: Cell<bool> = const { Cell::new(false) };
}

impl Marker {
    pub fn is_done(&self) -> bool {
        lock(&self.stream.state).done >= self.number
    }

    /// Waits until the work is done. Fails in a host function, which may be part of that work.
    pub fn wait(&self) -> Status {
        if self.is_done() {
            return Ok(());
        }
        if WORKER.get() {
            return Err(HipError::NOT_SUPPORTED);
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

    /// Returns a marker for all of its work, unless it is done.
    pub fn pending(self: &Arc<Self>) -> Option<Marker> {
        let state = lock(&self.state);
        (state.done < state.queued).then(|| Marker { stream: self.clone(), number: state.queued })
    }

    /// Returns what the null stream's implicit synchronization makes new work of this stream wait for.
    fn null_stream_dependencies(self: &Arc<Self>) -> Result<Vec<Marker>, HipError> {
        if self.non_blocking {
            return Ok(Vec::new());
        }
        if !self.is_null() {
            return Ok(self.device.existing_null_stream().and_then(Stream::pending).into_iter().collect());
        }
        let others: Vec<_> = self.device.streams().into_iter().filter(|s| !s.non_blocking && !Arc::ptr_eq(s, self)).collect();
        for other in &others {
            if let Some(capturing) = &lock(&other.state).capture {
                capturing.capture.invalidate();
                return Err(HipError::CAPTURE_IMPLICIT);
            }
        }
        Ok(others.iter().filter_map(Stream::pending).collect())
    }

    /// Returns everything that synchronizing with this stream waits for.
    pub fn sync_markers(self: &Arc<Self>) -> Result<Vec<Marker>, HipError> {
        let mut marks = if self.is_null() { self.null_stream_dependencies()? } else { Vec::new() };
        marks.extend(self.pending());
        Ok(marks)
    }

    /// Queues an operation, or adds it to the graph being captured.
    pub fn submit(self: &Arc<Self>, op: Operation) -> Status {
        self.device.check()?;
        if let Some(capturing) = &mut lock(&self.state).capture {
            return capturing.add(op);
        }
        self.push(QueueItem::Operation(op), Vec::new()).map(drop)
    }

    /// Queues an item that waits for `marks`, whether or not the stream is capturing.
    pub fn push(self: &Arc<Self>, work: QueueItem, marks: Vec<Marker>) -> Result<Marker, HipError> {
        let mut after = self.null_stream_dependencies()?;
        after.extend(marks);
        let mut state = lock(&self.state);
        if !state.worker {
            let stream = self.clone();
            let spawned = std::thread::Builder::new().name("vgpu stream".to_owned()).spawn(move || stream.work());
            spawned.map_err(|_| HipError::OUT_OF_MEMORY)?;
            state.worker = true;
        }
        state.queued += 1;
        state.queue.push_back(Item { after, work });
        let number = state.queued;
        drop(state);
        self.changed.notify_all();
        Ok(Marker { stream: self.clone(), number })
    }

    /// The worker thread.
    fn work(self: Arc<Self>) {
        WORKER.set(true);
        CURRENT.set(i32::try_from(self.device.ordinal).unwrap_or(0));
        while let Some(item) = self.next() {
            item.after.iter().for_each(Marker::wait_anywhere);
            // The item and what it keeps alive are dropped before it counts as done.
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

/// Returns the stream of a handle.
pub(super) fn of(handle: Handle) -> Result<Arc<Stream>, HipError> {
    let runtime = runtime()?;
    match handle as usize {
        0 | LEGACY => Ok(runtime.current()?.null_stream()),
        PER_THREAD => per_thread(runtime.current()?),
        _ => runtime.streams.get(handle),
    }
}

fn per_thread(device: &Arc<Device>) -> Result<Arc<Stream>, HipError> {
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
    let device = runtime.healthy()?;
    if out.is_null() || flags > NON_BLOCKING {
        return Err(HipError::INVALID_VALUE);
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

/// Queued work still runs: the worker thread keeps the stream alive.
pub(super) fn destroy(handle: Handle) -> Status {
    let stream = runtime()?.streams.remove(handle)?;
    if let Some(capturing) = lock(&stream.state).capture.take() {
        capturing.capture.invalidate();
    }
    Ok(())
}

/// Rejects synchronizing with or querying a capturing stream, and invalidates the capture.
fn refuse_capture(stream: &Stream) -> Status {
    match &lock(&stream.state).capture {
        Some(capturing) => {
            capturing.capture.invalidate();
            Err(HipError::CAPTURE_UNSUPPORTED)
        }
        None => Ok(()),
    }
}

pub(super) fn synchronize(handle: Handle) -> Status {
    let stream = of(handle)?;
    refuse_capture(&stream)?;
    stream.sync_markers()?.iter().try_for_each(Marker::wait)?;
    stream.device.check()
}

pub(super) fn query(handle: Handle) -> Status {
    let stream = of(handle)?;
    refuse_capture(&stream)?;
    stream.device.check()?;
    if stream.sync_markers()?.iter().all(Marker::is_done) { Ok(()) } else { Err(HipError::NOT_READY) }
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
    least.put_if_non_null(PRIORITIES.0);
    greatest.put_if_non_null(PRIORITIES.1);
    Ok(())
}

pub(super) fn wait_event(handle: Handle, event: Handle, flags: c_uint) -> Status {
    if flags > 1 {
        return Err(HipError::INVALID_VALUE);
    }
    let (stream, event) = (of(handle)?, runtime()?.events.get(event)?);
    stream.device.check()?;
    if let Some(point) = event.captured() {
        return capture::join(&stream, &point);
    }
    if let Some(capturing) = &lock(&stream.state).capture {
        // The graph would depend on work outside of it.
        capturing.capture.invalidate();
        return Err(HipError::CAPTURE_ISOLATION);
    }
    match event.mark() {
        Some(mark) if !mark.is_done() => stream.push(QueueItem::Nothing, vec![mark]).map(drop),
        _ => Ok(()),
    }
}

/// # Safety
/// `function` must be callable with `data` from another thread.
pub(super) unsafe fn launch_host_function(handle: Handle, function: HostFunction, data: Handle) -> Status {
    let function = function.ok_or(HipError::INVALID_VALUE)?;
    of(handle)?.submit(Operation::Host { function, data: data as usize })
}

/// # Safety
/// `callback` must be callable with the stream and `data` from another thread.
pub(super) unsafe fn add_callback(handle: Handle, callback: StreamCallback, data: Handle, flags: c_uint) -> Status {
    let callback = callback.ok_or(HipError::INVALID_VALUE)?;
    if flags != 0 {
        return Err(HipError::INVALID_VALUE);
    }
    let stream = of(handle)?;
    refuse_capture(&stream)?;
    stream.push(QueueItem::Callback { callback, stream: handle as usize, data: data as usize }, Vec::new()).map(drop)
}

/// Queues a timestamp and returns its marker.
pub(super) fn record_timestamp(stream: &Arc<Stream>) -> Result<(Marker, Arc<OnceLock<Instant>>), HipError> {
    let time = Arc::new(OnceLock::new());
    let mark = stream.push(QueueItem::Stamp(time.clone()), Vec::new())?;
    Ok((mark, time))
}
