//! The operations of streams and graphs.

use std::ffi::{c_int, c_void};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use super::error::{self, HipError};
use super::graph::Node;
use super::runtime::{Device, runtime};
use crate::code_object::{Kernel, LoadedCodeObject};
use crate::exec::{self, Launch, Limit};
use crate::memory::Memory;

/// A kernel launch. Keeps the code object alive.
pub(super) struct KernelLaunch {
    pub code_object: Arc<LoadedCodeObject>,
    pub kernel: Kernel,
    pub launch: Launch,
    pub memory: Arc<Memory>,
    pub limit: Limit,
}

/// An operation of a stream or a graph node.
#[derive(Clone)]
pub(super) enum Operation {
    Kernel(Arc<KernelLaunch>),
    /// Copies `rows` rows of `bytes` bytes.
    Copy {
        to: u64,
        from: u64,
        bytes: usize,
        rows: usize,
        to_pitch: usize,
        from_pitch: usize,
    },
    /// Writes a value of `width` bytes `count` times, in each of `rows` rows.
    Fill {
        at: u64,
        value: u32,
        width: usize,
        count: usize,
        rows: usize,
        pitch: usize,
    },
    Host {
        function: unsafe extern "C" fn(*mut c_void),
        data: usize,
    },
    Graph(Arc<Vec<Node>>),
}

/// An item of a stream's queue.
pub(super) enum QueueItem {
    Operation(Operation),
    /// Records the time at which all earlier items were done.
    Stamp(Arc<OnceLock<Instant>>),
    /// Calls a function, even after a fault, and passes the status.
    Callback {
        callback: unsafe extern "C" fn(*mut c_void, c_int, *mut c_void),
        stream: usize,
        data: usize,
    },
    Nothing,
}

impl QueueItem {
    /// Runs the item. A fault or a panic makes the device fail.
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
                // SAFETY: the caller that queued this promised that the function may be called with this data.
                unsafe { callback(stream as *mut c_void, status, data as *mut c_void) };
                Ok(())
            }
        }));
        match outcome {
            Ok(Ok(())) => {}
            Ok(Err((code, sentence))) => device.fail(code, &sentence),
            Err(_) => device.fail(HipError::LAUNCH_FAILURE, "internal error: the virtual GPU panicked while running queued work"),
        }
    }
}

impl Operation {
    fn run(&self) -> Result<(), (HipError, String)> {
        match self {
            Operation::Kernel(work) => {
                let outcome = exec::launch(&work.code_object, &work.kernel, &work.launch, &work.memory, work.limit, &print);
                outcome.map(drop).map_err(|fault| (error::from_fault(&fault), fault.to_string()))
            }
            Operation::Copy { to, from, bytes, rows, to_pitch, from_pitch } => {
                for row in 0..*rows {
                    let (to, from) = (*to as usize + row * to_pitch, *from as usize + row * from_pitch);
                    // SAFETY: registered ranges were checked when this was queued, and freeing them waits for it; the caller of
                    // `copy::queue` promised the rest.
                    unsafe { std::ptr::copy(from as *const u8, to as *mut u8, *bytes) };
                }
                Ok(())
            }
            Operation::Fill { at, value, width, count, rows, pitch } => {
                for row in 0..*rows {
                    // SAFETY: the range was checked when this was queued, and freeing it waits for all queued work.
                    unsafe { fill(*at + (row * pitch) as u64, *value, *width, *count) };
                }
                Ok(())
            }
            Operation::Host { function, data } => {
                // SAFETY: the caller that queued this promised that the function may be called with this data.
                unsafe { function(*data as *mut c_void) };
                Ok(())
            }
            Operation::Graph(nodes) => nodes.iter().try_for_each(|node| node.op.run()),
        }
    }

    /// Returns a number for its kind: a graph update may not change kinds.
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

/// Prints a kernel's output to stdout.
fn print(text: &str) {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes());
    let _ = out.flush();
}

/// Creates a kernel launch with the runtime's settings.
pub(super) fn kernel(code_object: &Arc<LoadedCodeObject>, kernel: &Kernel, launch: Launch) -> Result<Operation, HipError> {
    let runtime = runtime()?;
    let (memory, limit) = (runtime.memory.clone(), runtime.limit);
    Ok(Operation::Kernel(Arc::new(KernelLaunch { code_object: code_object.clone(), kernel: kernel.clone(), launch, memory, limit })))
}
