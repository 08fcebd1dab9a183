//! The state of the process: devices, memory, and the tables of handles.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use warpwave_vgpu::Arch;
use warpwave_vgpu::hip::Config;
use warpwave_vgpu::hip::model::{self, GpuModel};
use warpwave_vgpu::memory::Memory;

use crate::executable::Executables;
use crate::log;
use crate::pool::Allocations;
use crate::queue::Queues;
use crate::signal::Signals;
use crate::status::{Result, Status};
use crate::types::SystemEventCallback;

/// The card without `WARPWAVE_VGPU_DEVICES`: HIP starts each card that it finds, which takes time.
const DEFAULT_DEVICE: &str = "gfx90a";

/// A virtual GPU.
pub struct Device {
    pub arch: Arch,
    pub model: &'static GpuModel,
    /// Bytes of memory, and how many are allocated.
    pub memory: u64,
    pub used: AtomicU64,
}

/// The state of the process.
pub struct Runtime {
    pub config: Config,
    pub devices: Vec<Device>,
    pub memory: Arc<Memory>,
    pub allocations: Allocations,
    pub signals: Signals,
    pub queues: Queues,
    pub executables: Executables,
    /// The callback for memory faults and its data.
    pub fault_callback: Mutex<(SystemEventCallback, usize)>,
}

static RUNTIME: OnceLock<std::result::Result<Runtime, String>> = OnceLock::new();
/// Calls of `hsa_init` without one of `hsa_shut_down`.
static USERS: AtomicU32 = AtomicU32::new(0);

impl Runtime {
    fn new() -> std::result::Result<Runtime, String> {
        let config = Config::from_env_or(DEFAULT_DEVICE)?;
        let device = |arch: &Arch| {
            let model = GpuModel::of(*arch);
            let memory = config.memory.unwrap_or_else(|| model::default_memory(model));
            Device { arch: *arch, model, memory, used: AtomicU64::new(0) }
        };
        let memory = Arc::new(Memory::new());
        Ok(Runtime {
            devices: config.devices.iter().map(device).collect(),
            config,
            allocations: Allocations::default(),
            signals: Signals::default(),
            queues: Queues::default(),
            executables: Executables::default(),
            fault_callback: Mutex::new((None, 0)),
            memory,
        })
    }
}

/// Returns the state; an error before `hsa_init` and after the last `hsa_shut_down`.
pub fn runtime() -> Result<&'static Runtime> {
    match RUNTIME.get() {
        Some(Ok(runtime)) if USERS.load(Ordering::Acquire) > 0 => Ok(runtime),
        _ => Err(Status::NOT_INITIALIZED),
    }
}

/// Returns the state for threads of the library, which live on after `hsa_shut_down`.
pub fn created() -> Option<&'static Runtime> {
    RUNTIME.get()?.as_ref().ok()
}

/// Locks a mutex whose state is consistent between statements.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn hsa_init() -> Result {
    if let Err(reason) = RUNTIME.get_or_init(Runtime::new) {
        log::warn(format_args!("{reason}"));
        return Err(Status::OUT_OF_RESOURCES);
    }
    let raised = USERS.fetch_update(Ordering::AcqRel, Ordering::Acquire, |users| users.checked_add(1));
    raised.map(|_| ()).map_err(|_| Status::REFCOUNT_OVERFLOW)
}

pub fn hsa_shut_down() -> Result {
    let lowered = USERS.fetch_update(Ordering::AcqRel, Ordering::Acquire, |users| users.checked_sub(1));
    lowered.map(|_| ()).map_err(|_| Status::NOT_INITIALIZED)
}

/// Writes a result through a pointer of the caller.
///
/// # Safety
/// `to` must be null or writable for a `T`; it need not be aligned.
pub unsafe fn write<T>(to: *mut T, value: T) -> Result {
    if to.is_null() {
        return Err(Status::INVALID_ARGUMENT);
    }
    // SAFETY: the caller's promise.
    unsafe { to.write_unaligned(value) };
    Ok(())
}

/// Writes an attribute, whose type the attribute determines.
///
/// # Safety
/// As for [`write`].
pub unsafe fn put<T>(to: *mut c_void, value: T) -> Result {
    // SAFETY: the caller's promise.
    unsafe { write(to.cast(), value) }
}

/// Writes text into an array of `N` bytes, which zeros fill.
///
/// # Safety
/// As for [`write`].
pub unsafe fn put_text<const N: usize>(to: *mut c_void, text: &str) -> Result {
    let mut bytes = [0u8; N];
    let length = text.len().min(N - 1);
    bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
    // SAFETY: the caller's promise.
    unsafe { put(to, bytes) }
}

/// Calls `visit` with each handle, until one call does not return success; that status is the result.
pub fn visit(handles: impl IntoIterator<Item = u64>, mut visit: impl FnMut(u64) -> u32) -> Result {
    for handle in handles {
        match visit(handle) {
            0 => {}
            status => return Err(Status(status)),
        }
    }
    Ok(())
}
