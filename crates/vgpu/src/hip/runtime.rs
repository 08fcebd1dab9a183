//! The process's runtime: the virtual devices and the objects behind handles.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};

use super::capture::Capture;
use super::config::Config;
use super::error::{self, HipError, Status};
use super::event::Event;
use super::fat_binary::{FatBinary, HostSymbols};
use super::graph::{Graph, GraphExec};
use super::model::{self, GpuModel};
use super::module::{Function, Module};
use super::stream::{Marker, Stream};
use super::types::Handle;
use crate::arch::Arch;
use crate::exec::Limit;
use crate::memory::Memory;

/// A virtual device.
pub(super) struct Device {
    pub ordinal: u32,
    pub arch: Arch,
    pub model: &'static GpuModel,
    /// The most bytes that can be allocated.
    pub total: u64,
    pub used: Mutex<u64>,
    /// Set by the first fault; from then on every call fails, as on hardware.
    fault: Mutex<Option<HipError>>,
    streams: Mutex<Vec<Weak<Stream>>>,
    null: OnceLock<Arc<Stream>>,
    pub peers: Mutex<HashSet<i32>>,
}

impl Device {
    fn new(ordinal: u32, arch: Arch, memory: Option<u64>) -> Device {
        let model = GpuModel::of(arch);
        Device {
            ordinal,
            arch,
            model,
            total: memory.unwrap_or_else(|| model::default_memory(model)),
            used: Mutex::default(),
            fault: Mutex::default(),
            streams: Mutex::default(),
            null: OnceLock::new(),
            peers: Mutex::default(),
        }
    }

    /// Returns the error of the device's fault.
    pub fn check(&self) -> Status {
        lock(&self.fault).map_or(Ok(()), Err)
    }

    /// Makes the device fail from now on. Only the first fault counts.
    pub fn fail(&self, code: HipError, sentence: &str) {
        let mut fault = lock(&self.fault);
        if fault.is_none() {
            tracing::debug!(device = self.ordinal, "{sentence}");
            error::set_detail(code, sentence);
            *fault = Some(code);
        }
    }

    /// Clears the fault, as a reset does.
    pub fn clear_fault(&self) {
        *lock(&self.fault) = None;
    }

    /// Returns the null stream.
    pub fn null_stream(self: &Arc<Self>) -> Arc<Stream> {
        self.null
            .get_or_init(|| {
                let stream = Arc::new(Stream::new(self, false, 0));
                self.add_stream(&stream);
                stream
            })
            .clone()
    }

    pub fn existing_null_stream(&self) -> Option<&Arc<Stream>> {
        self.null.get()
    }

    pub fn add_stream(&self, stream: &Arc<Stream>) {
        let mut streams = lock(&self.streams);
        streams.retain(|known| known.strong_count() > 0);
        streams.push(Arc::downgrade(stream));
    }

    /// Returns its streams, including destroyed ones that still have work.
    pub fn streams(&self) -> Vec<Arc<Stream>> {
        lock(&self.streams).iter().filter_map(Weak::upgrade).collect()
    }

    /// Returns markers for all work that is queued now.
    pub fn marks(&self) -> Vec<Marker> {
        self.streams().iter().filter_map(Stream::pending).collect()
    }
}

/// Objects of one kind by their handles. An invalid handle is an error, never an access.
pub(super) struct Objects<T>(RwLock<HashMap<usize, Arc<T>>>);

impl<T> Default for Objects<T> {
    fn default() -> Self {
        Objects(RwLock::default())
    }
}

/// Handles are multiples of this, and start far from 0, 1 and 2, which HIP reserves.
const HANDLE_STEP: usize = 64;

impl<T> Objects<T> {
    pub fn add(&self, object: Arc<T>) -> Handle {
        static NEXT: AtomicUsize = AtomicUsize::new(0x10000);
        let handle = NEXT.fetch_add(HANDLE_STEP, Ordering::Relaxed);
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(handle, object);
        handle as Handle
    }

    pub fn get(&self, handle: Handle) -> Result<Arc<T>, HipError> {
        let objects = self.0.read().unwrap_or_else(PoisonError::into_inner);
        objects.get(&(handle as usize)).cloned().ok_or(HipError::INVALID_HANDLE)
    }

    pub fn remove(&self, handle: Handle) -> Result<Arc<T>, HipError> {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&(handle as usize)).ok_or(HipError::INVALID_HANDLE)
    }
}

/// The state of the process.
pub(super) struct Runtime {
    pub memory: Arc<Memory>,
    pub devices: Vec<Arc<Device>>,
    pub limit: Limit,
    pub streams: Objects<Stream>,
    pub events: Objects<Event>,
    pub modules: Objects<Module>,
    pub functions: Objects<Function>,
    pub graphs: Objects<Graph>,
    pub execs: Objects<GraphExec>,
    /// Captures in progress.
    pub captures: Mutex<Vec<Arc<Capture>>>,
    pub fats: Objects<FatBinary>,
    pub registered: Mutex<HostSymbols>,
}

impl Runtime {
    fn new(config: &Config) -> Runtime {
        let device = |(i, arch): (usize, &Arch)| Arc::new(Device::new(i as u32, *arch, config.memory));
        Runtime {
            memory: Arc::new(Memory::new()),
            devices: config.devices.iter().enumerate().map(device).collect(),
            limit: config.limit,
            streams: Objects::default(),
            events: Objects::default(),
            modules: Objects::default(),
            functions: Objects::default(),
            graphs: Objects::default(),
            execs: Objects::default(),
            captures: Mutex::default(),
            fats: Objects::default(),
            registered: Mutex::default(),
        }
    }

    pub fn device(&self, ordinal: i32) -> Result<&Arc<Device>, HipError> {
        usize::try_from(ordinal).ok().and_then(|i| self.devices.get(i)).ok_or(HipError::INVALID_DEVICE)
    }

    /// Returns the thread's current device.
    pub fn current(&self) -> Result<&Arc<Device>, HipError> {
        if self.devices.is_empty() {
            return Err(HipError::NO_DEVICE);
        }
        self.device(CURRENT.get())
    }

    /// Returns the thread's current device, unless it has a fault.
    pub fn healthy(&self) -> Result<&Arc<Device>, HipError> {
        let device = self.current()?;
        device.check()?;
        Ok(device)
    }

    /// Waits for all work of all devices, before memory that it may access is removed.
    pub fn synchronize_all(&self) -> Status {
        self.devices.iter().flat_map(|device| device.marks()).try_for_each(|mark| mark.wait())
    }
}

thread_local! {
    pub(super) static CURRENT: Cell<i32> = const { Cell::new(0) };
}

/// Returns the runtime, which starts on the first call. With invalid settings every call fails, with a text that names the variable.
pub(super) fn runtime() -> Result<&'static Runtime, HipError> {
    static RUNTIME: OnceLock<Result<Runtime, HipError>> = OnceLock::new();
    let started = RUNTIME.get_or_init(|| {
        Config::from_env().map(|config| Runtime::new(&config)).map_err(|sentence| {
            error::set_detail(HipError::NOT_INITIALIZED, &sentence);
            HipError::NOT_INITIALIZED
        })
    });
    started.as_ref().map_err(|code| *code)
}

/// Locks a mutex, ignoring poisoning.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
