//! Stream capture: work becomes nodes of a graph instead of running.
//!
//! Each capturing stream knows the nodes that its next node depends on. An event recorded during a capture is such a set of nodes; a
//! stream that waits for it joins the capture.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::ThreadId;

use super::error::{HipError, Status};
use super::graph::{Graph, Node};
use super::runtime::{lock, runtime};
use super::stream::{self, Stream};
use super::types::{Handle, Out};
use super::work::Operation;

/// Which other calls are rejected during a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Calls of any thread that might wait for the device.
    Global,
    /// Such calls of the capturing thread.
    ThreadLocal,
    /// None.
    Relaxed,
}

impl Mode {
    fn from_number(number: c_int) -> Result<Mode, HipError> {
        match number {
            0 => Ok(Mode::Global),
            1 => Ok(Mode::ThreadLocal),
            2 => Ok(Mode::Relaxed),
            _ => Err(HipError::INVALID_VALUE),
        }
    }

    fn number(self) -> c_int {
        match self {
            Mode::Global => 0,
            Mode::ThreadLocal => 1,
            Mode::Relaxed => 2,
        }
    }
}

/// A capture in progress.
pub(super) struct Capture {
    mode: Mode,
    thread: ThreadId,
    nodes: Mutex<Vec<Node>>,
    invalid: AtomicBool,
    /// The stream on which it began, then those that joined.
    streams: Mutex<Vec<Weak<Stream>>>,
}

/// A stream's state in a capture: the nodes that its next node depends on.
pub(super) struct CaptureState {
    pub capture: Arc<Capture>,
    last: Vec<usize>,
}

/// What an event recorded during a capture stands for.
#[derive(Clone)]
pub(super) struct CapturePoint {
    capture: Arc<Capture>,
    after: Vec<usize>,
}

impl Capture {
    /// Invalidates the capture: no nodes are added any more, and ending it is an error.
    pub fn invalidate(&self) {
        self.invalid.store(true, Ordering::Release);
    }

    fn check(&self) -> Status {
        if self.invalid.load(Ordering::Acquire) { Err(HipError::CAPTURE_INVALIDATED) } else { Ok(()) }
    }
}

impl CaptureState {
    /// Adds a node.
    pub fn add(&mut self, op: Operation) -> Status {
        self.capture.check()?;
        let mut nodes = lock(&self.capture.nodes);
        nodes.push(Node { after: std::mem::take(&mut self.last), op });
        self.last = vec![nodes.len() - 1];
        Ok(())
    }

    pub fn point(&self) -> CapturePoint {
        CapturePoint { capture: self.capture.clone(), after: self.last.clone() }
    }
}

impl CapturePoint {
    /// Returns whether its capture is still in progress.
    pub fn is_open(&self) -> bool {
        runtime().is_ok_and(|runtime| lock(&runtime.captures).iter().any(|open| Arc::ptr_eq(open, &self.capture)))
    }
}

/// Makes the stream's next work depend on the point.
pub(super) fn join(stream: &Arc<Stream>, point: &CapturePoint) -> Status {
    point.capture.check()?;
    let mut state = lock(&stream.state);
    match &mut state.capture {
        Some(capturing) if !Arc::ptr_eq(&capturing.capture, &point.capture) => {
            capturing.capture.invalidate();
            point.capture.invalidate();
            Err(HipError::CAPTURE_MERGE)
        }
        Some(capturing) => {
            for node in &point.after {
                if !capturing.last.contains(node) {
                    capturing.last.push(*node);
                }
            }
            Ok(())
        }
        None => {
            state.capture = Some(CaptureState { capture: point.capture.clone(), last: point.after.clone() });
            lock(&point.capture.streams).push(Arc::downgrade(stream));
            Ok(())
        }
    }
}

thread_local! {
    /// Set by `hipThreadExchangeStreamCaptureMode`.
    static THREAD_MODE: std::cell::Cell<Mode> = const { std::cell::Cell::new(Mode::Global) };
}

/// Rejects a call that cannot be captured and might wait for the device, if a capture in progress forbids it. That invalidates the capture.
pub(super) fn reject_during() -> Status {
    if THREAD_MODE.get() == Mode::Relaxed {
        return Ok(());
    }
    let me = std::thread::current().id();
    let captures = lock(&runtime()?.captures);
    let hit = captures.iter().find(|c| match c.mode {
        Mode::Global => true,
        Mode::ThreadLocal => c.thread == me,
        Mode::Relaxed => false,
    });
    match hit {
        Some(capture) => {
            capture.invalidate();
            Err(HipError::CAPTURE_UNSUPPORTED)
        }
        None => Ok(()),
    }
}

pub(super) fn exchange_mode(mode: Out<c_int>) -> Status {
    if mode.is_null() {
        return Err(HipError::INVALID_VALUE);
    }
    // SAFETY: it is not null, and `Out` is valid for reads.
    let new_mode = Mode::from_number(unsafe { mode.raw().read_unaligned() })?;
    mode.put(THREAD_MODE.replace(new_mode).number())
}

pub(super) fn begin(handle: Handle, mode: c_int) -> Status {
    let (runtime, mode) = (runtime()?, Mode::from_number(mode)?);
    if handle as usize <= 1 {
        // The null stream waits for other streams, which a graph cannot express.
        return Err(HipError::CAPTURE_UNSUPPORTED);
    }
    let stream = stream::of(handle)?;
    stream.device.check()?;
    let mut state = lock(&stream.state);
    if state.capture.is_some() {
        return Err(HipError::ILLEGAL_STATE);
    }
    let capture = Arc::new(Capture {
        mode,
        thread: std::thread::current().id(),
        nodes: Mutex::default(),
        invalid: AtomicBool::new(false),
        streams: Mutex::new(vec![Arc::downgrade(&stream)]),
    });
    state.capture = Some(CaptureState { capture: capture.clone(), last: Vec::new() });
    drop(state);
    lock(&runtime.captures).push(capture);
    Ok(())
}

pub(super) fn end(handle: Handle, out: Out<Handle>) -> Status {
    let runtime = runtime()?;
    let stream = stream::of(handle)?;
    let capture = lock(&stream.state).capture.as_ref().map(|capturing| capturing.capture.clone()).ok_or(HipError::ILLEGAL_STATE)?;
    let origin = lock(&capture.streams).first().and_then(Weak::upgrade);
    if !origin.is_some_and(|origin| Arc::ptr_eq(&origin, &stream)) {
        capture.invalidate();
        return Err(HipError::CAPTURE_UNMATCHED);
    }
    if capture.mode != Mode::Relaxed && capture.thread != std::thread::current().id() {
        return Err(HipError::CAPTURE_WRONG_THREAD);
    }
    lock(&runtime.captures).retain(|open| !Arc::ptr_eq(open, &capture));
    let last: Vec<Vec<usize>> = lock(&capture.streams)
        .iter()
        .filter_map(Weak::upgrade)
        .filter_map(|s| lock(&s.state).capture.take())
        .map(|capturing| capturing.last)
        .collect();
    out.clear();
    capture.check()?;
    let nodes = std::mem::take(&mut *lock(&capture.nodes));
    let (own, joined) = last.split_first().ok_or(HipError::CAPTURE_INVALIDATED)?;
    if !joined.iter().flatten().all(|node| reaches(&nodes, own, *node)) {
        return Err(HipError::CAPTURE_UNJOINED);
    }
    out.put(runtime.graphs.add(Arc::new(Graph { nodes: Mutex::new(Arc::new(nodes)) })))
}

/// Returns whether `node` is one of `from` or one of their dependencies.
fn reaches(nodes: &[Node], from: &[usize], node: usize) -> bool {
    let mut seen = vec![false; nodes.len()];
    let mut open = from.to_vec();
    while let Some(at) = open.pop() {
        if at == node {
            return true;
        }
        // Nodes depend on earlier nodes only.
        if at > node && !std::mem::replace(&mut seen[at], true) {
            open.extend(&nodes[at].after);
        }
    }
    false
}

/// Returns `hipStreamCaptureStatus`: 0 none, 1 active, 2 invalidated.
fn status_of(stream: &Stream) -> c_int {
    match &lock(&stream.state).capture {
        None => 0,
        Some(capturing) => 1 + c_int::from(capturing.capture.check().is_err()),
    }
}

pub(super) fn is_capturing(handle: Handle, out: Out<c_int>) -> Status {
    out.put(status_of(&*stream::of(handle)?))
}

pub(super) fn info(handle: Handle, status: Out<c_int>, id: Out<u64>) -> Status {
    let stream = stream::of(handle)?;
    let number = lock(&stream.state).capture.as_ref().map_or(0, |capturing| Arc::as_ptr(&capturing.capture) as u64);
    id.put_if_non_null(number);
    status.put(status_of(&stream))
}
