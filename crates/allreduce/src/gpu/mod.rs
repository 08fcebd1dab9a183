//! Device memory: locating buffers, copies and reductions.
//!
//! In a program that uses no GPU, [`locate`] costs one check of the loader's counter, and no driver is initialized. If the program has
//! loaded a driver, that instance is used.
//!
//! | type | purpose |
//! |---|---|
//! | [`DeviceContext`] | resources of a device kept between calls: streams, kernels, pinned memory |
//! | [`DeviceGuard`] | use of a device by one call; restores the thread's current device when dropped |
//! | [`PooledStream`] | a stream of a guard, with [`StagingBuffer`]s, [`ScratchBuffer`]s and [`PooledEvent`]s |
//! | [`Kernels`] | the compiled kernels of one datatype and operator |
//!
//! **Stream order.** Pooled streams are blocking: they synchronize with the legacy default stream in both directions, and never with the
//! whole device. The program must synchronize its own non-blocking streams before the call, as with any GPU-aware MPI. Dropping a
//! pooled stream waits for its work.
//!
//! **Threads.** Threads share a context. Each has its own streams, and no lock is held while waiting.

mod kernels;
mod stream;

use std::collections::HashMap;
use std::ffi::c_void;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

use warpwave_gpu::{Device, DevicePtr, Event, HostBuffer, MemoryKind, Stream, loaded_drivers, loaded_drivers::LoadedDriver};
use warpwave_jit::{Jit, JitError};

use crate::comm::lock;
use crate::datatype::{Op, Repr};

pub use kernels::{Kernels, MAX_PEERS, alignment};
pub use stream::{DeviceGuard, PooledEvent, PooledStream, ScratchBuffer, StagingBuffer};

/// Why an operation on a device failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The driver or the device layer failed.
    #[error(transparent)]
    Gpu(#[from] warpwave_gpu::Error),
    /// The reduction kernel could not be compiled or loaded.
    #[error("cannot build the {op:?} kernel for {repr:?} on {device}: {reason}")]
    #[allow(missing_docs)]
    Kernel { repr: Repr, op: Op, device: String, reason: Arc<JitError> },
    /// A device buffer is not aligned for its datatype.
    #[error("device address {address:#x} is not aligned for {repr:?}: expected a multiple of {} bytes", alignment(*.repr))]
    #[allow(missing_docs)]
    Misaligned { address: DevicePtr, repr: Repr },
    /// NCCL or RCCL returned an error.
    #[error("{call}: {why}")]
    #[allow(missing_docs)]
    Nccl { call: &'static str, why: String },
    /// The driver does not report the device of an allocation.
    #[error("cannot determine the device of the buffer at {address:#x}")]
    #[allow(missing_docs)]
    NoDevice { address: DevicePtr },
}

/// The result of an operation on a device.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Where a buffer in device memory is.
#[derive(Clone)]
pub struct DeviceLocation {
    /// The device that owns the memory.
    pub device: Arc<DeviceContext>,
    /// Managed memory, which the host can access too.
    pub unified: bool,
}

/// Returns the device that holds a buffer, or `None` for host memory, pinned or not. Fails for memory that can be accessed neither from
/// the host nor through a known device.
pub fn locate(pointer: *const c_void) -> Result<Option<DeviceLocation>> {
    let address = pointer as DevicePtr;
    for loaded in loaded_drivers::all() {
        // A driver that the program has not initialized, or that has no devices, owns no memory.
        let Some(driver) = Some(loaded).filter(|loaded| loaded.is_initialized()).and_then(|loaded| loaded.driver().ok()) else { continue };
        if driver.device_names().is_empty() {
            continue;
        }
        // Some drivers need a current device for the query. If it still fails, the driver does not own the address.
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
        return Ok(Some(DeviceLocation { device: context_of(driver.device(ordinal)?), unified }));
    }
    Ok(None)
}

/// Returns whether the program has initialized a GPU driver: only then can a buffer be in device memory.
#[inline]
pub fn is_active() -> bool {
    loaded_drivers::all().any(LoadedDriver::is_initialized)
}

/// Returns whether this process may use a GPU later.
pub fn is_possible() -> bool {
    let devices = ["/dev/nvidiactl", "/dev/kfd", "/dev/dxg"];
    let named = ["WARPWAVE_CUDA_LIB", "WARPWAVE_HIP_LIB"];
    is_active() || devices.iter().any(|path| Path::new(path).exists()) || named.iter().any(|name| std::env::var_os(name).is_some())
}

/// Returns the process-wide context of a device.
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

/// Kernels or the error of building them, computed once.
type KernelCell = Arc<OnceLock<Result<Arc<Kernels>>>>;

/// Resources of a device that are kept between calls.
pub struct DeviceContext {
    device: Device,
    jit: Jit,
    kernels: Mutex<HashMap<(Repr, Op), KernelCell>>,
    streams: Mutex<Vec<Stream>>,
    events: Mutex<Vec<Event>>,
    staging: Mutex<Vec<HostBuffer<u8>>>,
}

impl DeviceContext {
    /// Creates a context whose kernels are compiled by `jit`.
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

    /// Returns the device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the kernels of a datatype and operator, compiled on first use. A failure is permanent: compilation is not retried.
    pub fn kernels(&self, repr: Repr, op: Op) -> Result<Arc<Kernels>> {
        let cell = lock(&self.kernels).entry((repr, op)).or_default().clone();
        // Only threads that need the same kernels wait here.
        let build = || {
            let _guard = self.enter()?;
            Kernels::load(&self.device, &self.jit, repr, op)
        };
        cell.get_or_init(build).clone()
    }

    /// Starts using the device on this thread.
    pub fn enter(&self) -> Result<DeviceGuard<'_>> {
        DeviceGuard::new(self)
    }
}
