//! Graphs: work captured once and launched many times with one call each.
//!
//! A graph keeps every buffer and module that its work uses alive until it is dropped, so the pool cannot reuse that memory. Within a
//! capture, memory that was allocated in it and is not in use any more is reused for allocations of the same size on the same stream.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::device::Device;
use crate::error::{Error, Result};
use crate::host_view::HostHold;
use crate::memory::{Block, mark_used};
use crate::module::Module;
use crate::stream::Stream;
use crate::table::{Failure, Handle, Vendor};
use crate::vendor::code;

/// The resources that captured work uses.
#[derive(Default)]
struct Kept {
    blocks: Vec<Arc<Block>>,
    /// Indices of the blocks that were allocated in the capture, by stream and size in bytes.
    own: HashMap<(u64, usize), Vec<usize>>,
    modules: Vec<Module>,
}

/// A capture in progress: the resources it uses and the streams it includes.
#[derive(Default)]
pub(crate) struct Capture {
    kept: Mutex<Kept>,
    streams: Mutex<Vec<Stream>>,
}

impl Capture {
    pub fn keep(&self, block: &Arc<Block>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if !kept.blocks.iter().any(|known| Arc::ptr_eq(known, block)) {
            kept.blocks.push(block.clone());
        }
    }

    /// Keeps a block that was allocated for captured work on `stream`.
    pub fn keep_own(&self, block: &Arc<Block>, stream: &Stream) {
        let kept = &mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.own.entry((stream.id(), block.bytes())).or_default().push(kept.blocks.len());
        kept.blocks.push(block.clone());
    }

    /// Returns a block of that size that was allocated in this capture and that only captured work on `stream` uses: what is captured on
    /// the stream from now on runs after that work.
    pub fn reuse(&self, stream: &Stream, bytes: usize) -> Option<Arc<Block>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let own = kept.own.get(&(stream.id(), bytes))?;
        // The list has the only reference to a block that the program dropped, so no other thread can get one.
        own.iter().map(|index| &kept.blocks[*index]).find(|block| Arc::strong_count(block) == 1 && !block.is_shared()).cloned()
    }

    pub fn keep_module(&self, module: &Module) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if !kept.modules.iter().any(|known| known.is_same(module)) {
            kept.modules.push(module.clone());
        }
    }

    /// Adds a stream to the capture.
    pub fn join(self: &Arc<Self>, stream: &Stream) {
        stream.device().0.captures.fetch_add(1, Ordering::AcqRel);
        stream.set_capture(Some(self.clone()));
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).push(stream.clone());
    }

    /// Releases the streams and returns the resources for the graph.
    fn finish(&self) -> Kept {
        for stream in std::mem::take(&mut *self.streams.lock().unwrap_or_else(PoisonError::into_inner)) {
            stream.set_capture(None);
            stream.device().0.captures.fetch_sub(1, Ordering::AcqRel);
        }
        std::mem::take(&mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A driver's graph handle. Drivers allow one call at a time on each.
struct Raw(Handle);

// SAFETY: graph handles may be used from any thread, one at a time, which the mutex around each sees to.
unsafe impl Send for Raw {}

/// Captured work, not yet executable.
pub struct Graph {
    device: Device,
    raw: Mutex<Raw>,
    kept: Arc<Kept>,
}

/// An executable graph.
pub struct GraphExec {
    device: Device,
    raw: Mutex<Raw>,
    /// The resources the work uses; after an update that failed half-way, those of both graphs.
    kept: Vec<Arc<Kept>>,
}

fn lock(raw: &Mutex<Raw>) -> MutexGuard<'_, Raw> {
    raw.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stream {
    /// Captures the work that `record` queues on this stream, and on streams that wait for its events, instead of running it. This stream
    /// must wait for those streams again before `record` returns.
    ///
    /// A device synchronization outside of this crate, in any thread or library, invalidates the capture: [`Error::CaptureEnded`].
    pub fn capture_graph(&self, record: impl FnOnce(&Stream) -> Result<()>) -> Result<Graph> {
        /// Other threads may allocate during the capture.
        const RELAXED: i32 = 2;
        if self.is_capturing() {
            return Err(Error::Capturing { what: "a second capture" });
        }
        let device = self.device();
        // A capture can only use memory that no queued work uses: offer what this stream freed to all streams.
        device.0.pool.share_blocks_of(self)?;
        let capture = Arc::new(Capture::default());
        {
            let (_exclusive, _no_waits) = (self.enter_exclusive(), device.block_waits());
            let table = device.activate()?;
            // SAFETY: the handle is live.
            device.check(unsafe { table.capture_begin(self.raw(), RELAXED) })?;
            capture.join(self);
        }
        // The capture must end however `record` does.
        let recorded = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| record(self)));
        let mut raw = std::ptr::null_mut();
        let (ended, kept) = {
            let _exclusive = self.enter_exclusive();
            let ended = device.activate().and_then(|table| {
                // SAFETY: the output outlives the call, and the stream is being captured.
                device.check(unsafe { table.capture_end(self.raw(), &mut raw) })
            });
            (ended, capture.finish())
        };
        // Owned from here on, so that no path below leaks it.
        let graph = Graph { device: device.clone(), raw: Mutex::new(Raw(raw)), kept: Arc::new(kept) };
        // Events for blocks freed during the capture can be recorded now.
        device.0.pool.collect_parked(device);
        let outcome = recorded.unwrap_or_else(|panic| std::panic::resume_unwind(panic)).and(ended);
        outcome.map(|()| graph).map_err(|error| match error {
            Error::Driver { device, code: code::CAPTURE_INVALIDATED, .. } => Error::CaptureEnded { device },
            error => error,
        })
    }
}

impl Graph {
    /// Instantiates it.
    pub fn instantiate(&self) -> Result<GraphExec> {
        let table = self.device.activate()?;
        let mut raw = std::ptr::null_mut();
        let graph = lock(&self.raw);
        // SAFETY: the output outlives the call, and the graph is live.
        self.device.check(unsafe { table.graph_instantiate(&mut raw, graph.0, 0) })?;
        Ok(GraphExec { device: self.device.clone(), raw: Mutex::new(Raw(raw)), kept: vec![self.kept.clone()] })
    }
}

impl GraphExec {
    /// Launches it on `stream`. Fails while the program holds a view of host memory that the work uses.
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        stream.check_same_device(&self.device, "the graph")?;
        let _gate = stream.enter();
        let exec = lock(&self.raw);
        let table = self.device.activate()?;
        let blocks = || self.kept.iter().flat_map(|kept| kept.blocks.iter());
        // No view can be taken until the blocks are marked.
        let _host = HostHold::of(blocks())?;
        // SAFETY: both handles are live, and the graph holds all that it touches.
        self.device.check(unsafe { table.graph_launch(exec.0, stream.raw()) })?;
        mark_used(blocks(), stream)
    }

    /// Replaces its parameters by those of a graph of the same topology, without instantiating again.
    pub fn update(&mut self, graph: &Graph) -> Result<()> {
        if graph.device != self.device {
            let (expected, actual) = (self.device.name().to_owned(), graph.device.name().to_owned());
            return Err(Error::WrongDevice { what: "the new graph".to_owned(), expected, actual });
        }
        let table = self.device.activate()?;
        let (mut node, mut result) = (std::ptr::null_mut(), 0);
        let (exec, new) = (lock(&self.raw), lock(&graph.raw));
        // SAFETY: the outputs outlive the call, and both graphs are live.
        let outcome = unsafe { table.graph_update(exec.0, new.0, &mut node, &mut result) };
        drop((exec, new));
        if outcome.is_ok() {
            self.kept = vec![graph.kept.clone()];
            return Ok(());
        }
        // HIP updates node by node and stops at the first mismatch: the work may use the memory of both graphs now.
        self.kept.push(graph.kept.clone());
        if let Err(Failure::Code { code: code::GRAPH_UPDATE_FAILED, .. }) = outcome {
            return Err(Error::GraphUpdate { reason: update_result(result).to_owned() });
        }
        self.device.check(outcome)
    }
}

/// `CUgraphExecUpdateResult`, the same numbers on both vendors.
fn update_result(number: i32) -> &'static str {
    match number {
        2 => "nodes or dependencies were added or removed",
        3 => "a node's type changed",
        4 => "a kernel changed",
        5 => "a node's new parameters are unsupported",
        6 => "a node type does not support updates",
        7 => "a kernel change is unsupported",
        _ => "no reason given by the driver",
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let raw = lock(&self.raw).0;
        if let Ok(table) = self.device.activate()
            && !raw.is_null()
        {
            // SAFETY: the handle is ours, and this is its last use.
            let _ = unsafe { table.graph_destroy(raw) };
        }
    }
}

impl Drop for GraphExec {
    fn drop(&mut self) {
        // HIP before 6.2 destroys graphs that still run.
        if self.device.info().vendor == Vendor::Amd && self.device.synchronize().is_err() {
            return;
        }
        if let Ok(table) = self.device.activate() {
            // SAFETY: the handle is ours, and this is its last use.
            let _ = unsafe { table.graph_exec_destroy(lock(&self.raw).0) };
        }
    }
}
