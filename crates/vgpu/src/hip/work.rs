//! The work of streams and graphs.

use std::ffi::{c_int, c_void};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use super::error::{self, HipError};
use super::graph::Node;
use super::runtime::{Device, runtime};
use crate::code_object::{Kernel, LoadedCodeObject};
use crate::exec::{self, Launch, Limit};
use crate::memory::Memory;

/// A kernel with its arguments. It keeps the program's code.
pub(super) struct KernelLaunch {
    pub program: Arc<LoadedCodeObject>,
    pub kernel: Kernel,
    pub launch: Launch,
    pub memory: Arc<Memory>,
    pub limit: Limit,
}

/// What a stream runs and a graph repeats.
#[derive(Clone)]
pub(super) enum Operation {
    Kernel(Arc<KernelLaunch>),
    /// Rows of `bytes` bytes, `rows` of them, each so far from the one before.
    Copy {
        to: u64,
        from: u64,
        bytes: usize,
        rows: usize,
        to_pitch: usize,
        from_pitch: usize,
    },
    /// `count` times a value of `width` bytes.
    Fill {
        at: u64,
        value: u32,
        width: usize,
        count: usize,
    },
    Host {
        function: unsafe extern "C" fn(*mut c_void),
        data: usize,
    },
    Graph(Arc<Vec<Node>>),
}

/// What stands in a stream's queue.
pub(super) enum QueueItem {
    Operation(Operation),
    /// The time at which everything before was done.
    Stamp(Arc<OnceLock<Instant>>),
    /// Runs even when the device is lost, and is told so.
    Callback {
        callback: unsafe extern "C" fn(*mut c_void, c_int, *mut c_void),
        stream: usize,
        data: usize,
    },
    Nothing,
}

impl QueueItem {
    /// Runs it. A fault, or a panic of ours, is the device's end.
    pub fn run(self, device: &Device) {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| match self {
            QueueItem::Operation(op) if device.check().is_ok() => op.run(),
            QueueItem::Operation(_) | QueueItem::Nothing => Ok(()),
            QueueItem::Stamp(time) => {
                let _ = time.set(Instant::now());
                Ok(())
            }
            QueueItem::Callback { callback, stream, data } => {
                let status = device.check().err().map_or(0, |code| code.0);
                // SAFETY: the application handed the function to be called with this data.
                unsafe { callback(stream as *mut c_void, status, data as *mut c_void) };
                Ok(())
            }
        }));
        match outcome {
            Ok(Ok(())) => {}
            Ok(Err((code, sentence))) => device.fail(code, &sentence),
            Err(_) => device.fail(HipError::LAUNCH_FAILURE, "the virtual GPU itself failed: a panic while it ran queued work"),
        }
    }
}

impl Operation {
    fn run(&self) -> Result<(), (HipError, String)> {
        match self {
            Operation::Kernel(work) => {
                let outcome = exec::launch(&work.program, &work.kernel, &work.launch, &work.memory, work.limit, &print);
                outcome.map(drop).map_err(|fault| (error::from_fault(&fault), fault.to_string()))
            }
            Operation::Copy { to, from, bytes, rows, to_pitch, from_pitch } => {
                for row in 0..*rows {
                    let (to, from) = (*to as usize + row * to_pitch, *from as usize + row * from_pitch);
                    // SAFETY: the ranges that the driver knows were checked when this was queued, and freeing them waits for it; the
                    // application promises the rest.
                    unsafe { std::ptr::copy(from as *const u8, to as *mut u8, *bytes) };
                }
                Ok(())
            }
            Operation::Fill { at, value, width, count } => {
                // SAFETY: the range was checked when this was queued, and freeing it waits for all queued work.
                unsafe { fill(*at, *value, *width, *count) };
                Ok(())
            }
            Operation::Host { function, data } => {
                // SAFETY: the application handed the function to be called with this data.
                unsafe { function(*data as *mut c_void) };
                Ok(())
            }
            Operation::Graph(nodes) => nodes.iter().try_for_each(|node| node.op.run()),
        }
    }

    /// A word for its kind: graphs are updated only kind by kind.
    pub fn kind(&self) -> u32 {
        match self {
            Operation::Kernel(_) => 0,
            Operation::Copy { .. } => 1,
            Operation::Fill { .. } => 2,
            Operation::Host { .. } => 3,
            Operation::Graph(_) => 4,
        }
    }
}

/// # Safety
/// The range must be writable.
unsafe fn fill(at: u64, value: u32, width: usize, count: usize) {
    let bytes = value.to_le_bytes();
    // SAFETY: the caller's promise.
    unsafe {
        if width == 1 || bytes[..width].iter().all(|b| *b == bytes[0]) {
            std::ptr::write_bytes(at as *mut u8, bytes[0], count * width);
            return;
        }
        for index in 0..count {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), (at as *mut u8).add(index * width), width);
        }
    }
}

/// What kernels print goes to the process's output, at once and in order.
fn print(text: &str) {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes());
    let _ = out.flush();
}

/// A launch of `kernel` with what the process's settings add.
pub(super) fn kernel(program: &Arc<LoadedCodeObject>, kernel: &Kernel, launch: Launch) -> Result<Operation, HipError> {
    let runtime = runtime()?;
    let (memory, limit) = (runtime.memory.clone(), runtime.limit);
    Ok(Operation::Kernel(Arc::new(KernelLaunch { program: program.clone(), kernel: kernel.clone(), launch, memory, limit })))
}
