//! The device half: where a buffer lies, and work on it.
//!
//! A program without a GPU pays for one look at the loader's counter ([`place_of`]); no driver is ever started for it. Where the program
//! did load a driver, that very instance is used.
//!
//! | what | who |
//! |---|---|
//! | [`DeviceContext`] | what is kept for a device between calls: streams, kernels, page-locked memory |
//! | [`Visit`] | one call's stay on it; the thread's current device is restored when it ends |
//! | [`Lane`] | one stream of a visit, with its [`Staging`], [`Scratch`] and [`Mark`]s |
//! | [`Kernels`] | the compiled operation of one element and operation |
//!
//! **Order.** Lanes are blocking streams: their work begins after all that the program has queued on the legacy default stream, and what
//! it queues there later begins after theirs. Nothing waits for the whole device. Work that the program queued on its own non-blocking
//! streams it must wait for itself, as for any MPI. A lane that is dropped has no work in flight.
//!
//! **Threads.** Visits of several threads share a context: each lane has its stream to itself, and no lock is held while anything waits.

mod kernels;
mod lane;

use std::collections::HashMap;
use std::ffi::c_void;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use warpwave_gpu::{Device, DevicePtr, Event, HostBuffer, MemoryKind, Stream, loaded_drivers, loaded_drivers::LoadedDriver};
use warpwave_jit::{Jit, JitError};

use crate::element::{Op, Repr};

pub use kernels::{Kernels, PEERS, alignment};
pub use lane::{Lane, Mark, Scratch, Staging, Visit};

/// Why work on a device failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The driver or the device layer.
    #[error(transparent)]
    Gpu(#[from] warpwave_gpu::Error),
    /// The kernel is not to be had: no compiler, most often.
    #[error("no kernel for {op:?} of {repr:?} on {device}: {reason}")]
    Kernel { repr: Repr, op: Op, device: String, reason: Arc<JitError> },
    /// Devices read elements at multiples of their alignment only.
    #[error("{address:#x} is no address of a {repr:?}")]
    Misaligned { address: DevicePtr, repr: Repr },
    /// NCCL or RCCL.
    #[error("{call}: {why}")]
    Nccl { call: &'static str, why: String },
    /// The driver knows the memory, but not its device.
    #[error("no device is known for the memory at {address:#x}")]
    NoDevice { address: DevicePtr },
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Where device memory is.
#[derive(Clone)]
pub struct Place {
    pub device: Arc<DeviceContext>,
    /// The host may address it too.
    pub unified: bool,
}

/// Where a buffer of the program is; `None` is host memory, page-locked or not. An error means memory that neither the host nor this
/// library may touch.
pub fn place_of(pointer: *const c_void) -> Result<Option<Place>> {
    let address = pointer as DevicePtr;
    for loaded in loaded_drivers::all() {
        // A driver that was not started, cannot be, or has no devices has no memory.
        let Some(driver) = Some(loaded).filter(|loaded| loaded.is_initialized()).and_then(|loaded| loaded.driver().ok()) else { continue };
        if driver.device_names().is_empty() {
            continue;
        }
        // Some drivers want a current device for the question; one that still cannot tell knows nothing of the address.
        let kind = driver.memory_kind_of(address).or_else(|_| {
            let _current = driver.keep_current()?;
            driver.device(0)?.make_current()?;
            driver.memory_kind_of(address)
        });
        let unified = match kind.unwrap_or(None) {
            Some(MemoryKind::Device) => false,
            Some(MemoryKind::Unified) => true,
            Some(MemoryKind::Host) | None => continue,
        };
        let ordinal = driver.device_of(address).ok_or(Error::NoDevice { address })?;
        return Ok(Some(Place { device: context_of(driver.device(ordinal)?), unified }));
    }
    Ok(None)
}

/// Whether a driver is at work in this process: only then can a buffer be on a device.
#[inline]
pub fn in_use() -> bool {
    loaded_drivers::all().any(LoadedDriver::is_initialized)
}

/// Whether this process may come to use a GPU.
pub fn possible() -> bool {
    let devices = ["/dev/nvidiactl", "/dev/kfd", "/dev/dxg"];
    let named = ["WARPWAVE_CUDA_LIB", "WARPWAVE_HIP_LIB"];
    in_use() || devices.iter().any(|path| Path::new(path).exists()) || named.iter().any(|name| std::env::var_os(name).is_some())
}

/// The one context of a device.
fn context_of(device: Device) -> Arc<DeviceContext> {
    static CONTEXTS: Mutex<Vec<Arc<DeviceContext>>> = Mutex::new(Vec::new());
    static JIT: OnceLock<Jit> = OnceLock::new();
    let mut contexts = lock(&CONTEXTS);
    if let Some(known) = contexts.iter().find(|context| context.device == device) {
        return known.clone();
    }
    let context = Arc::new(DeviceContext::new(device, JIT.get_or_init(Jit::default).clone()));
    contexts.push(context.clone());
    context
}

/// Kernels, or why there are none; made once.
type Made = Arc<OnceLock<Result<Arc<Kernels>>>>;

/// What is kept for a device between calls.
pub struct DeviceContext {
    device: Device,
    jit: Jit,
    kernels: Mutex<HashMap<(Repr, Op), Made>>,
    streams: Mutex<Vec<Stream>>,
    events: Mutex<Vec<Event>>,
    staging: Mutex<Vec<HostBuffer<u8>>>,
}

impl DeviceContext {
    /// For a device, with kernels from `jit`.
    pub fn new(device: Device, jit: Jit) -> DeviceContext {
        DeviceContext {
            device,
            jit,
            kernels: Mutex::default(),
            streams: Mutex::default(),
            events: Mutex::default(),
            staging: Mutex::default(),
        }
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The kernels of an operation, compiled when first asked for. What fails once fails always: a compiler is not looked for again.
    pub fn kernels(&self, repr: Repr, op: Op) -> Result<Arc<Kernels>> {
        let place = lock(&self.kernels).entry((repr, op)).or_default().clone();
        // Others who ask for the same wait here, and nobody else.
        place.get_or_init(|| self.in_visit(|| Kernels::load(&self.device, &self.jit, repr, op))).clone()
    }

    /// Begins a stay on the device.
    pub fn visit(&self) -> Result<Visit<'_>> {
        Visit::new(self)
    }

    fn in_visit<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let _visit = self.visit()?;
        work()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
