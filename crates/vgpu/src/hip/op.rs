//! The work of streams and graphs.

use std::ffi::{c_int, c_void};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use super::code::{self, Code};
use super::graph::Node;
use super::runtime::{Device, runtime};
use crate::exec::{self, Launch, Limit};
use crate::memory::Memory;
use crate::program::{Kernel, Program};

/// A kernel with its arguments. It keeps the program's code.
pub(super) struct KernelLaunch {
    pub program: Arc<Program>,
    pub kernel: Kernel,
    pub launch: Launch,
    pub memory: Arc<Memory>,
    pub limit: Limit,
}

/// What a stream runs and a graph repeats.
#[derive(Clone)]
pub(super) enum Op {
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
pub(super) enum Work {
    Op(Op),
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

impl Work {
    /// Runs it. A fault, or a panic of ours, is the device's end.
    pub fn run(self, device: &Device) {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| match self {
            Work::Op(op) if device.check().is_ok() => op.run(),
            Work::Op(_) | Work::Nothing => Ok(()),
            Work::Stamp(time) => {
                let _ = time.set(Instant::now());
                Ok(())
            }
            Work::Callback { callback, stream, data } => {
                let status = device.check().err().map_or(0, |code| code.0);
                // SAFETY: the application handed the function to be called with this data.
                unsafe { callback(stream as *mut c_void, status, data as *mut c_void) };
                Ok(())
            }
        }));
        match outcome {
            Ok(Ok(())) => {}
            Ok(Err((code, sentence))) => device.fail(code, &sentence),
            Err(_) => device.fail(Code::LAUNCH_FAILURE, "the virtual GPU itself failed: a panic while it ran queued work"),
        }
    }
}

impl Op {
    fn run(&self) -> Result<(), (Code, String)> {
        match self {
            Op::Kernel(work) => {
                let outcome = exec::launch(&work.program, &work.kernel, &work.launch, &work.memory, work.limit, &print);
                outcome.map(drop).map_err(|fault| (code::of_fault(&fault), fault.to_string()))
            }
            Op::Copy { to, from, bytes, rows, to_pitch, from_pitch } => {
                for row in 0..*rows {
                    let (to, from) = (*to as usize + row * to_pitch, *from as usize + row * from_pitch);
                    // SAFETY: the ranges that the driver knows were checked when this was queued, and freeing them waits for it; the
                    // application promises the rest.
                    unsafe { std::ptr::copy(from as *const u8, to as *mut u8, *bytes) };
                }
                Ok(())
            }
            Op::Fill { at, value, width, count } => {
                fill(*at, *value, *width, *count);
                Ok(())
            }
            Op::Host { function, data } => {
                // SAFETY: the application handed the function to be called with this data.
                unsafe { function(*data as *mut c_void) };
                Ok(())
            }
            Op::Graph(nodes) => nodes.iter().try_for_each(|node| node.op.run()),
        }
    }

    /// A word for its kind: graphs are updated only kind by kind.
    pub fn kind(&self) -> u32 {
        match self {
            Op::Kernel(_) => 0,
            Op::Copy { .. } => 1,
            Op::Fill { .. } => 2,
            Op::Host { .. } => 3,
            Op::Graph(_) => 4,
        }
    }
}

fn fill(at: u64, value: u32, width: usize, count: usize) {
    let bytes = value.to_le_bytes();
    // SAFETY: the range was checked when this was queued, and freeing it waits for it.
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
pub(super) fn kernel(program: &Arc<Program>, kernel: &Kernel, launch: Launch) -> Result<Op, Code> {
    let runtime = runtime()?;
    let (memory, limit) = (runtime.memory.clone(), runtime.limit);
    Ok(Op::Kernel(Arc::new(KernelLaunch { program: program.clone(), kernel: kernel.clone(), launch, memory, limit })))
}
