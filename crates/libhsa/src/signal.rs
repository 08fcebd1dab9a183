//! Signals: numbers that the host, queues and kernels change and wait for.
//!
//! A handle is the address of an `amd_signal_t` in one of a few slabs, so that a handle is checked without a table of all signals. Slabs
//! live as long as the process: a late access to a destroyed signal is harmless.

use std::ffi::c_void;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use warpwave_vgpu::memory::MemoryKind;

use crate::log;
use crate::runtime::{Runtime, created, lock, runtime, write};
use crate::status::{Result, Status};
use crate::types::{Deferred, Handle, Signal, SignalHandler, Times, Value};

const SIGNAL_BYTES: u64 = size_of::<Signal>() as u64;
const SLAB_SIGNALS: u64 = 1024;
/// Kernels change signals without waking anyone: waits look again after this time.
const POLL: Duration = Duration::from_millis(1);

/// Values of [`Signal::kind`].
pub mod kind {
    pub const DESTROYED: i64 = 0;
    pub const USER: i64 = 1;
    pub const DOORBELL: i64 = -1;
}

/// The signals of the process.
#[derive(Default)]
pub struct Signals {
    slabs: RwLock<Vec<u64>>,
    free: Mutex<Vec<u64>>,
    handlers: Mutex<Handlers>,
}

/// What a thread of the library calls when signals change.
#[derive(Default)]
struct Handlers {
    is_running: bool,
    waiting: Vec<Handler>,
}

struct Handler {
    /// 0 for a function that is called at once.
    signal: Handle,
    condition: u32,
    value: Value,
    call: Call,
    /// The argument's address.
    argument: usize,
}

enum Call {
    OnSignal(unsafe extern "C" fn(Value, *mut c_void) -> bool),
    Once(unsafe extern "C" fn(*mut c_void)),
}

static CHANGED: Condvar = Condvar::new();
static CHANGES: Mutex<()> = Mutex::new(());

/// Wakes everyone who waits for signals.
pub fn notify() {
    drop(lock(&CHANGES));
    CHANGED.notify_all();
}

/// Waits until `is_done` returns `true` or the deadline has passed; returns whether it did.
pub fn wait_until(deadline: Option<Instant>, mut is_done: impl FnMut() -> bool) -> bool {
    let mut guard = lock(&CHANGES);
    loop {
        if is_done() {
            return true;
        }
        let left = deadline.map_or(POLL, |end| end.saturating_duration_since(Instant::now()).min(POLL));
        if left.is_zero() {
            return false;
        }
        guard = CHANGED.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0;
    }
}

/// Returns whether a value satisfies an `hsa_signal_condition_t`.
pub fn satisfies(value: Value, condition: u32, compare: Value) -> bool {
    match condition {
        0 => value == compare,
        1 => value != compare,
        2 => value < compare,
        _ => value >= compare,
    }
}

impl Signals {
    /// Creates a signal.
    pub fn create(&self, runtime: &Runtime, kind: i64, value: Value, queue: u64) -> Result<Handle> {
        let mut free = lock(&self.free);
        if free.is_empty() {
            let bytes = (SLAB_SIGNALS * SIGNAL_BYTES) as usize;
            let start = runtime.memory.allocate(bytes, MemoryKind::Host).ok_or(Status::OUT_OF_RESOURCES)?;
            // SAFETY: the slab was just allocated, and zeros are destroyed signals.
            unsafe { (start as *mut u8).write_bytes(0, bytes) };
            self.slabs.write().unwrap_or_else(PoisonError::into_inner).push(start);
            free.extend((0..SLAB_SIGNALS).rev().map(|index| start + index * SIGNAL_BYTES));
        }
        let handle = free.pop().ok_or(Status::OUT_OF_RESOURCES)?;
        // SAFETY: the address is in a slab, which lives as long as the process.
        let signal = unsafe { &*(handle as *const Signal) };
        signal.value.store(value, Ordering::Relaxed);
        signal.start.store(0, Ordering::Relaxed);
        signal.end.store(0, Ordering::Relaxed);
        signal.queue.store(queue, Ordering::Relaxed);
        signal.kind.store(kind, Ordering::Release);
        Ok(handle)
    }

    /// Returns the signal of a handle; `None` for other numbers and destroyed signals.
    pub fn get(&self, handle: Handle) -> Option<&'static Signal> {
        let slabs = self.slabs.read().unwrap_or_else(PoisonError::into_inner);
        let inside = |start: &u64| handle >= *start && handle < start + SLAB_SIGNALS * SIGNAL_BYTES;
        if !handle.is_multiple_of(SIGNAL_BYTES) || !slabs.iter().any(inside) {
            return None;
        }
        // SAFETY: the address is of a signal in a slab, which lives as long as the process, and all its fields are atomics.
        let signal = unsafe { &*(handle as *const Signal) };
        (signal.kind.load(Ordering::Acquire) != kind::DESTROYED).then_some(signal)
    }

    /// Destroys a signal.
    pub fn destroy(&self, handle: Handle) -> Result {
        let signal = self.get(handle).ok_or(Status::INVALID_SIGNAL)?;
        if signal.kind.swap(kind::DESTROYED, Ordering::AcqRel) == kind::DESTROYED {
            return Err(Status::INVALID_SIGNAL);
        }
        // The handle may be reused at once; handlers of this signal are not those of the next.
        lock(&self.handlers).waiting.retain(|handler| handler.signal != handle);
        lock(&self.free).push(handle);
        Ok(())
    }

    fn add_handler(&'static self, handler: Handler) -> Result {
        let mut handlers = lock(&self.handlers);
        handlers.waiting.push(handler);
        if !handlers.is_running {
            let thread = std::thread::Builder::new().name("hsa-handlers".to_owned());
            thread.spawn(|| self.call_handlers()).map_err(|_| Status::OUT_OF_RESOURCES)?;
            handlers.is_running = true;
        }
        drop(handlers);
        notify();
        Ok(())
    }

    /// Removes a handler whose signal satisfies its condition, and returns it with the value. Forgets those of destroyed signals.
    fn take_ready(&self) -> Option<(Handler, Value)> {
        let mut handlers = lock(&self.handlers);
        handlers.waiting.retain(|handler| handler.signal == 0 || self.get(handler.signal).is_some());
        let value = |handler: &Handler| self.get(handler.signal).map_or(0, |signal| signal.value.load(Ordering::Acquire));
        let is_ready = |handler: &Handler| handler.signal == 0 || satisfies(value(handler), handler.condition, handler.value);
        let at = handlers.waiting.iter().position(is_ready)?;
        let handler = handlers.waiting.remove(at);
        let value = value(&handler);
        Some((handler, value))
    }

    /// Calls handlers for ever.
    fn call_handlers(&self) {
        loop {
            while let Some((handler, value)) = self.take_ready() {
                let argument = handler.argument as *mut c_void;
                match handler.call {
                    // SAFETY: the function and its argument came together, and the caller promised that they fit.
                    Call::Once(function) => unsafe { function(argument) },
                    Call::OnSignal(function) => {
                        // SAFETY: as above.
                        let is_kept = unsafe { function(value, argument) };
                        if is_kept {
                            lock(&self.handlers).waiting.push(handler);
                        }
                    }
                }
            }
            let guard = lock(&CHANGES);
            // Without handlers there is nothing to poll for; adding one wakes this thread.
            if lock(&self.handlers).waiting.is_empty() {
                drop(CHANGED.wait(guard));
            } else {
                drop(CHANGED.wait_timeout(guard, POLL));
            }
        }
    }
}

/// Returns the signal of a handle in functions that cannot report an error.
fn known(handle: Handle) -> Option<&'static Signal> {
    let signal = created().and_then(|runtime| runtime.signals.get(handle));
    if signal.is_none() {
        log::warn(format_args!("{handle:#x} is not a valid signal; it may have been destroyed"));
    }
    signal
}

/// Changes a value and wakes those who wait for it. Returns the previous value; 0 for an invalid signal.
fn change(handle: Handle, operation: impl FnOnce(&AtomicI64) -> Value) -> Value {
    let Some(signal) = known(handle) else { return 0 };
    let old = operation(&signal.value);
    if signal.kind.load(Ordering::Relaxed) == kind::DOORBELL {
        if let Some(queue) = created().and_then(|runtime| runtime.queues.get(signal.queue.load(Ordering::Relaxed))) {
            queue.ring();
        }
    } else {
        notify();
    }
    old
}

/// # Safety
/// `to` must be null or writable.
pub unsafe fn hsa_signal_create(value: Value, _consumers: u32, _agents: *const Handle, to: *mut Handle) -> Result {
    let runtime = runtime()?;
    if to.is_null() {
        return Err(Status::INVALID_ARGUMENT);
    }
    let signal = runtime.signals.create(runtime, kind::USER, value, 0)?;
    // SAFETY: the caller's promise.
    unsafe { write(to, signal) }
}

/// # Safety
/// As for [`hsa_signal_create`].
pub unsafe fn hsa_amd_signal_create(value: Value, consumers: u32, agents: *const Handle, _flags: u64, to: *mut Handle) -> Result {
    // SAFETY: the caller's promise.
    unsafe { hsa_signal_create(value, consumers, agents, to) }
}

pub fn hsa_signal_destroy(signal: Handle) -> Result {
    let signals = &runtime()?.signals;
    match signals.get(signal) {
        Some(found) if found.kind.load(Ordering::Relaxed) == kind::USER => signals.destroy(signal),
        _ => Err(Status::INVALID_SIGNAL),
    }
}

pub fn load(signal: Handle) -> Value {
    known(signal).map_or(0, |signal| signal.value.load(Ordering::Acquire))
}

pub fn store(signal: Handle, value: Value) {
    change(signal, |at| at.swap(value, Ordering::AcqRel));
}

pub fn exchange(signal: Handle, value: Value) -> Value {
    change(signal, |at| at.swap(value, Ordering::AcqRel))
}

pub fn cas(signal: Handle, expected: Value, value: Value) -> Value {
    change(signal, |at| at.compare_exchange(expected, value, Ordering::AcqRel, Ordering::Acquire).unwrap_or_else(|old| old))
}

pub fn add(signal: Handle, value: Value) {
    change(signal, |at| at.fetch_add(value, Ordering::AcqRel));
}

pub fn subtract(signal: Handle, value: Value) {
    change(signal, |at| at.fetch_sub(value, Ordering::AcqRel));
}

pub fn and(signal: Handle, value: Value) {
    change(signal, |at| at.fetch_and(value, Ordering::AcqRel));
}

pub fn or(signal: Handle, value: Value) {
    change(signal, |at| at.fetch_or(value, Ordering::AcqRel));
}

pub fn xor(signal: Handle, value: Value) {
    change(signal, |at| at.fetch_xor(value, Ordering::AcqRel));
}

/// Returns when a timeout in system ticks ends; `None` for never.
fn deadline(timeout: u64) -> Option<Instant> {
    Instant::now().checked_add(Duration::from_nanos(timeout)).filter(|_| timeout < u64::MAX / 2)
}

pub fn wait(signal: Handle, condition: u32, compare: Value, timeout: u64, _state: u32) -> Value {
    let Some(found) = known(signal) else { return 0 };
    let mut value = found.value.load(Ordering::Acquire);
    wait_until(deadline(timeout), || {
        value = found.value.load(Ordering::Acquire);
        satisfies(value, condition, compare)
    });
    value
}

/// Waits for one of several signals. Returns its index; `u32::MAX` after the timeout.
///
/// # Safety
/// The arrays must have `count` elements, and `satisfying` must be null or writable.
pub unsafe fn hsa_amd_signal_wait_any(
    count: u32,
    signals: *const Handle,
    conditions: *const u32,
    values: *const Value,
    timeout: u64,
    _state: u32,
    satisfying: *mut Value,
) -> u32 {
    if signals.is_null() || conditions.is_null() || values.is_null() {
        return u32::MAX;
    }
    // SAFETY: the caller's promise.
    let of = |index: usize| unsafe { (signals.add(index).read(), conditions.add(index).read(), values.add(index).read()) };
    let waited: Vec<_> = (0..count as usize).map(of).collect();
    let mut found = None;
    wait_until(deadline(timeout), || {
        found = waited.iter().enumerate().find_map(|(index, &(signal, condition, compare))| {
            let value = created()?.signals.get(signal)?.value.load(Ordering::Acquire);
            satisfies(value, condition, compare).then_some((index as u32, value))
        });
        found.is_some()
    });
    let Some((index, value)) = found else { return u32::MAX };
    if !satisfying.is_null() {
        // SAFETY: the caller's promise.
        unsafe { satisfying.write(value) };
    }
    index
}

/// # Safety
/// `to` must be null or writable.
pub unsafe fn hsa_amd_signal_value_pointer(signal: Handle, to: *mut *const AtomicI64) -> Result {
    let signal = runtime()?.signals.get(signal).ok_or(Status::INVALID_SIGNAL)?;
    // SAFETY: the caller's promise.
    unsafe { write(to, &raw const signal.value) }
}

/// # Safety
/// `handler` must accept `argument`, in a thread of the library.
pub unsafe fn hsa_amd_signal_async_handler(
    signal: Handle,
    condition: u32,
    value: Value,
    handler: SignalHandler,
    argument: *mut c_void,
) -> Result {
    let runtime = runtime()?;
    let function = handler.filter(|_| condition <= 3).ok_or(Status::INVALID_ARGUMENT)?;
    if signal != 0 && runtime.signals.get(signal).is_none() {
        return Err(Status::INVALID_SIGNAL);
    }
    let call = Call::OnSignal(function);
    runtime.signals.add_handler(Handler { signal, condition, value, call, argument: argument as usize })
}

/// # Safety
/// `function` must accept `argument`, in a thread of the library.
pub unsafe fn hsa_amd_async_function(function: Deferred, argument: *mut c_void) -> Result {
    let call = Call::Once(function.ok_or(Status::INVALID_ARGUMENT)?);
    runtime()?.signals.add_handler(Handler { signal: 0, condition: 0, value: 0, call, argument: argument as usize })
}

/// # Safety
/// `to` must be null or writable.
pub unsafe fn hsa_amd_profiling_get_dispatch_time(agent: Handle, signal: Handle, to: *mut Times) -> Result {
    runtime()?.device(agent)?;
    // SAFETY: the caller's promise.
    unsafe { hsa_amd_profiling_get_async_copy_time(signal, to) }
}

/// # Safety
/// `to` must be null or writable.
pub unsafe fn hsa_amd_profiling_get_async_copy_time(signal: Handle, to: *mut Times) -> Result {
    let signal = runtime()?.signals.get(signal).ok_or(Status::INVALID_SIGNAL)?;
    // SAFETY: the caller's promise.
    unsafe { write(to, Times { start: signal.start.load(Ordering::Acquire), end: signal.end.load(Ordering::Acquire) }) }
}

/// Copies are always timed.
pub fn hsa_amd_profiling_async_copy_enable(_enable: u8) -> Result {
    runtime().map(|_| ())
}

/// # Safety
/// `to` must be null or writable.
pub unsafe fn hsa_amd_profiling_convert_tick_to_system_domain(agent: Handle, tick: u64, to: *mut u64) -> Result {
    runtime()?.device(agent)?;
    // SAFETY: the caller's promise.
    unsafe { write(to, tick) }
}

impl Runtime {
    /// Returns the signals of a list of dependencies.
    ///
    /// # Safety
    /// The list must have `count` elements.
    pub unsafe fn dependencies(&self, count: u32, list: *const Handle) -> Result<Vec<Handle>> {
        if count == 0 {
            return Ok(Vec::new());
        }
        if list.is_null() {
            return Err(Status::INVALID_ARGUMENT);
        }
        // SAFETY: the caller's promise.
        let signals: Vec<Handle> = (0..count as usize).map(|index| unsafe { list.add(index).read_unaligned() }).collect();
        if signals.iter().any(|signal| self.signals.get(*signal).is_none()) { Err(Status::INVALID_SIGNAL) } else { Ok(signals) }
    }

    /// Records the times of an operation, and then lowers its completion signal. 0 stands for none.
    pub fn complete(&self, signal: Handle, start: u64, end: u64) {
        if let Some(signal) = self.signals.get(signal) {
            signal.start.store(start, Ordering::Relaxed);
            signal.end.store(end, Ordering::Relaxed);
            signal.value.fetch_sub(1, Ordering::AcqRel);
            notify();
        }
    }
}
