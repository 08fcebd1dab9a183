//! Copies: a thread that waits for the signals of each, copies, and completes its signal.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, OnceLock};

use crate::runtime::{Runtime, lock, runtime, write};
use crate::signal::{notify, wait_until};
use crate::status::{Result, Status};
use crate::system::now;
use crate::types::{Dim3, Handle, Pitched};

/// The engines that [`hsa_amd_memory_copy_engine_status`] reports.
const ENGINES: u32 = 3;

/// A copy of rows.
#[derive(Clone, Copy)]
struct Rows {
    to: u64,
    from: u64,
    /// Bytes of a row, then rows and layers.
    bytes: usize,
    rows: u64,
    layers: u64,
    /// Bytes between rows and between layers, at the destination and the source.
    to_steps: [u64; 2],
    from_steps: [u64; 2],
}

impl Rows {
    /// # Safety
    /// The source must be readable and the destination writable.
    unsafe fn copy(&self) {
        for layer in 0..self.layers {
            for row in 0..self.rows {
                let at = |start: u64, steps: [u64; 2]| start + layer * steps[1] + row * steps[0];
                let (to, from) = (at(self.to, self.to_steps), at(self.from, self.from_steps));
                // SAFETY: the caller's promise.
                unsafe { std::ptr::copy(from as *const u8, to as *mut u8, self.bytes) };
            }
        }
    }
}

struct Job {
    rows: Rows,
    dependencies: Vec<Handle>,
    completion: Handle,
}

static JOBS: Mutex<Vec<Job>> = Mutex::new(Vec::new());

/// Queues a copy.
fn submit(runtime: &'static Runtime, job: Job) -> Result {
    static THREAD: OnceLock<bool> = OnceLock::new();
    let thread = || std::thread::Builder::new().name("hsa-copy".to_owned());
    if !*THREAD.get_or_init(|| thread().spawn(|| run(runtime)).is_ok()) {
        return Err(Status::OUT_OF_RESOURCES);
    }
    lock(&JOBS).push(job);
    notify();
    Ok(())
}

/// Copies for ever: the first job whose dependencies are 0 comes first, so that none blocks one that it waits for.
fn run(runtime: &Runtime) {
    loop {
        let mut next = None;
        let is_met = |signal: &Handle| runtime.signals.get(*signal).is_none_or(|signal| signal.value.load(Ordering::Acquire) == 0);
        wait_until(None, || {
            let mut jobs = lock(&JOBS);
            let ready = jobs.iter().position(|job| job.dependencies.iter().all(is_met));
            next = ready.map(|at| jobs.remove(at));
            next.is_some()
        });
        let Some(job) = next else { continue };
        let start = now();
        // SAFETY: the program promised that the memory is valid until the completion signal.
        unsafe { job.rows.copy() };
        runtime.complete(job.completion, start, now());
    }
}

/// # Safety
/// Source and destination must be valid until the completion signal, and the list have `count` elements.
#[allow(clippy::too_many_arguments)]
pub unsafe fn hsa_amd_memory_async_copy(
    to: u64,
    to_agent: Handle,
    from: u64,
    from_agent: Handle,
    bytes: usize,
    count: u32,
    dependencies: *const Handle,
    completion: Handle,
) -> Result {
    let runtime = runtime()?;
    runtime.agent(to_agent)?;
    runtime.agent(from_agent)?;
    if bytes > 0 && (to == 0 || from == 0) {
        return Err(Status::INVALID_ARGUMENT);
    }
    if completion != 0 && runtime.signals.get(completion).is_none() {
        return Err(Status::INVALID_SIGNAL);
    }
    // SAFETY: the caller's promise.
    let dependencies = unsafe { runtime.dependencies(count, dependencies)? };
    let rows = Rows { to, from, bytes, rows: 1, layers: 1, to_steps: [0; 2], from_steps: [0; 2] };
    submit(runtime, Job { rows, dependencies, completion })
}

/// # Safety
/// As for [`hsa_amd_memory_async_copy`].
#[allow(clippy::too_many_arguments)]
pub unsafe fn hsa_amd_memory_async_copy_on_engine(
    to: u64,
    to_agent: Handle,
    from: u64,
    from_agent: Handle,
    bytes: usize,
    count: u32,
    dependencies: *const Handle,
    completion: Handle,
    engine: u32,
    _force: u8,
) -> Result {
    if !engine.is_power_of_two() {
        return Err(Status::INVALID_ARGUMENT);
    }
    // SAFETY: the caller's promise.
    unsafe { hsa_amd_memory_async_copy(to, to_agent, from, from_agent, bytes, count, dependencies, completion) }
}

/// # Safety
/// `to` must be null or writable.
pub unsafe fn hsa_amd_memory_copy_engine_status(to_agent: Handle, from_agent: Handle, to: *mut u32) -> Result {
    let runtime = runtime()?;
    runtime.agent(to_agent)?;
    runtime.agent(from_agent)?;
    // SAFETY: the caller's promise.
    unsafe { write(to, ENGINES) }
}

/// # Safety
/// `to` must be null or writable.
pub unsafe fn hsa_amd_memory_get_preferred_copy_engine(to_agent: Handle, from_agent: Handle, to: *mut u32) -> Result {
    // SAFETY: the caller's promise.
    unsafe { hsa_amd_memory_copy_engine_status(to_agent, from_agent, to) }
}

/// Returns the first byte of a rectangle and its steps; an error if its end is not an address.
fn rectangle(memory: &Pitched, offset: &Dim3, range: &Dim3) -> Result<(u64, [u64; 2])> {
    let steps = [memory.pitch as u64, memory.slice as u64];
    let at = |x: u32, y: u32, z: u32| {
        let rows = steps[0].checked_mul(u64::from(y))?;
        let layers = steps[1].checked_mul(u64::from(z))?;
        memory.base.checked_add(u64::from(x))?.checked_add(rows)?.checked_add(layers)
    };
    let sum = |a: u32, b: u32| a.checked_add(b).ok_or(Status::INVALID_ARGUMENT);
    let end = at(sum(offset.x, range.x)?, sum(offset.y, range.y)?, sum(offset.z, range.z)?);
    match (at(offset.x, offset.y, offset.z), end) {
        (Some(start), Some(_)) if memory.base != 0 => Ok((start, steps)),
        _ => Err(Status::INVALID_ARGUMENT),
    }
}

/// # Safety
/// The pointers must be null or valid, the memory until the completion signal, and the list have `count` elements.
#[allow(clippy::too_many_arguments)]
pub unsafe fn hsa_amd_memory_async_copy_rect(
    to: *const Pitched,
    to_offset: *const Dim3,
    from: *const Pitched,
    from_offset: *const Dim3,
    range: *const Dim3,
    agent: Handle,
    _direction: u32,
    count: u32,
    dependencies: *const Handle,
    completion: Handle,
) -> Result {
    let runtime = runtime()?;
    runtime.device(agent)?;
    // SAFETY: the caller's promise.
    let given = unsafe { (to.as_ref(), to_offset.as_ref(), from.as_ref(), from_offset.as_ref(), range.as_ref()) };
    let (Some(to), Some(to_offset), Some(from), Some(from_offset), Some(range)) = given else {
        return Err(Status::INVALID_ARGUMENT);
    };
    let (to, to_steps) = rectangle(to, to_offset, range)?;
    let (from, from_steps) = rectangle(from, from_offset, range)?;
    if completion != 0 && runtime.signals.get(completion).is_none() {
        return Err(Status::INVALID_SIGNAL);
    }
    // SAFETY: the caller's promise.
    let dependencies = unsafe { runtime.dependencies(count, dependencies)? };
    let (rows, layers) = (range.y.into(), range.z.into());
    submit(runtime, Job { rows: Rows { to, from, bytes: range.x as usize, rows, layers, to_steps, from_steps }, dependencies, completion })
}

/// # Safety
/// The memory must be valid.
pub unsafe fn hsa_memory_copy(to: u64, from: u64, bytes: usize) -> Result {
    runtime()?;
    if bytes == 0 {
        return Ok(());
    }
    if to == 0 || from == 0 {
        return Err(Status::INVALID_ARGUMENT);
    }
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes) };
    Ok(())
}

/// # Safety
/// The memory must have room for `count` numbers of 32 bits.
pub unsafe fn hsa_amd_memory_fill(to: u64, value: u32, count: usize) -> Result {
    runtime()?;
    if to == 0 || !to.is_multiple_of(4) {
        return Err(Status::INVALID_ARGUMENT);
    }
    for index in 0..count {
        // SAFETY: the caller's promise.
        unsafe { (to as *mut u32).add(index).write(value) };
    }
    Ok(())
}
