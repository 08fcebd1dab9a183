//! Graphs: work captured once, then launched again and again at little cost.
//!
//! A graph keeps every buffer that its work touches, allocated before or during the capture, until it is dropped; the
//! pool cannot hand that memory to anyone else meanwhile. So temporaries of a capture are not reused within it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::{Block, mark_used};
use crate::stream::Stream;
use crate::table::{Failure, Handle};
use crate::vendor::code;

/// A capture under way: what it touches, and the streams that take part.
#[derive(Default)]
pub(crate) struct Capture {
    blocks: Mutex<Vec<Arc<Block>>>,
    streams: Mutex<Vec<Stream>>,
}

impl Capture {
    pub fn keep(&self, block: &Arc<Block>) {
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        if !blocks.iter().any(|known| Arc::ptr_eq(known, block)) {
            blocks.push(block.clone());
        }
    }

    /// A stream takes part from now on.
    pub fn join(self: &Arc<Self>, stream: &Stream) {
        stream.set_capture(Some(self.clone()));
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).push(stream.clone());
    }

    /// Lets the streams go; what was touched remains for the graph.
    fn finish(&self) -> Vec<Arc<Block>> {
        for stream in std::mem::take(&mut *self.streams.lock().unwrap_or_else(PoisonError::into_inner)) {
            stream.set_capture(None);
        }
        std::mem::take(&mut *self.blocks.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Captured work.
pub struct Graph {
    device: Device,
    raw: Handle,
    blocks: Arc<[Arc<Block>]>,
}

/// A graph ready to launch.
pub struct GraphExec {
    device: Device,
    raw: Handle,
    blocks: Arc<[Arc<Block>]>,
}

// SAFETY: graph handles may be used from any thread, one at a time; changing calls take `&mut self`.
unsafe impl Send for Graph {}
// SAFETY: as above.
unsafe impl Sync for Graph {}
// SAFETY: as above.
unsafe impl Send for GraphExec {}
// SAFETY: as above.
unsafe impl Sync for GraphExec {}

impl Stream {
    /// Captures the work that `record` queues on this stream, and on streams that wait for its events, instead of
    /// running it. Those other streams must be waited for again before `record` returns.
    pub fn capture_graph(&self, record: impl FnOnce(&Stream) -> Result<()>) -> Result<Graph> {
        /// Other threads may allocate meanwhile.
        const RELAXED: i32 = 2;
        if self.is_capturing() {
            return Err(Error::Capturing { what: "a second capture" });
        }
        let device = self.device();
        let table = device.activate()?;
        // SAFETY: the handle is live.
        device.check(unsafe { table.capture_begin(self.raw(), RELAXED) })?;
        let capture = Arc::new(Capture::default());
        capture.join(self);
        device.0.captures.fetch_add(1, Ordering::AcqRel);
        // The capture must end however `record` does.
        let recorded = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| record(self)));
        let mut raw = std::ptr::null_mut();
        let ended = device.activate().and_then(|table| {
            // SAFETY: the output outlives the call, and the stream is being captured.
            device.check(unsafe { table.capture_end(self.raw(), &mut raw) })
        });
        let blocks = capture.finish();
        device.0.captures.fetch_sub(1, Ordering::AcqRel);
        // Owned from here on, so that no path below leaks it.
        let graph = Graph { device: device.clone(), raw, blocks: blocks.into() };
        match recorded {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(outcome) => outcome?,
        }
        ended?;
        Ok(graph)
    }
}

impl Graph {
    /// Makes it ready to launch.
    pub fn instantiate(&self) -> Result<GraphExec> {
        let table = self.device.activate()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the output outlives the call, and the graph is live.
        self.device.check(unsafe { table.graph_instantiate(&mut raw, self.raw, 0) })?;
        Ok(GraphExec { device: self.device.clone(), raw, blocks: self.blocks.clone() })
    }
}

impl GraphExec {
    /// Queues the graph's work on `stream`.
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        stream.check_same_device(&self.device, "the graph")?;
        let table = self.device.activate()?;
        // SAFETY: both handles are live, and the graph holds all memory it touches.
        self.device.check(unsafe { table.graph_launch(self.raw, stream.raw()) })?;
        mark_used(self.blocks.iter(), stream)
    }

    /// Takes over the parameters of a graph of the same shape, without instantiating again.
    pub fn update(&mut self, graph: &Graph) -> Result<()> {
        if graph.device != self.device {
            let (expected, actual) = (self.device.name().to_owned(), graph.device.name().to_owned());
            return Err(Error::WrongDevice { what: "the new graph".to_owned(), expected, actual });
        }
        let table = self.device.activate()?;
        let (mut node, mut result) = (std::ptr::null_mut(), 0);
        // SAFETY: the outputs outlive the call, and both graphs are live.
        let outcome = unsafe { table.graph_update(self.raw, graph.raw, &mut node, &mut result) };
        if let Err(Failure::Code { code: code::GRAPH_UPDATE_FAILED, .. }) = outcome {
            return Err(Error::GraphUpdate { reason: update_result(result).to_owned() });
        }
        self.device.check(outcome)?;
        self.blocks = graph.blocks.clone();
        Ok(())
    }
}

/// `CUgraphExecUpdateResult`, the same numbers on both vendors.
fn update_result(number: i32) -> &'static str {
    match number {
        2 => "the topology changed",
        3 => "a node's type changed",
        4 => "a kernel changed",
        5 => "a node's parameters changed in a way that cannot be taken over",
        6 => "a node's kind does not support it",
        7 => "a kernel changed in a way that cannot be taken over",
        _ => "the driver does not say why",
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if let Ok(table) = self.device.activate()
            && !self.raw.is_null()
        {
            // SAFETY: the handle is ours, and this is its last use.
            let _ = unsafe { table.graph_destroy(self.raw) };
        }
    }
}

impl Drop for GraphExec {
    fn drop(&mut self) {
        if let Ok(table) = self.device.activate() {
            // SAFETY: the handle is ours, and this is its last use. The driver finishes launches in flight; the pool
            // learned of the streams they run on.
            let _ = unsafe { table.graph_exec_destroy(self.raw) };
        }
    }
}
