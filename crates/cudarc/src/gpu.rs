//! A device of this process: what its contexts, streams and buffers share.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use warpwave::gpu::{Arch, Arg, Buffer, DEVICE_VARIABLE, Device, DeviceSpec, Devices, Event, Kernel, Slice, Stream};
use warpwave::jit::{Jit, KernelSource};
use warpwave::kernels::Kernels;

use crate::driver::sys::{CUdevice, CUdevice_attribute, CUresult};
use crate::error::DriverError;
use crate::source::Container;

type Result<T, E = DriverError> = std::result::Result<T, E>;

/// Locks a value that no panic can leave half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A device and what it has in common for all contexts.
pub(crate) struct Gpu {
    pub device: Device,
    pub kernels: Kernels,
    jit: Jit,
    number: CUdevice,
    /// The stream of everything that does not ask for its own. One for all threads: their work is in one order.
    stream: Stream,
    default: Mutex<Weak<Queue>>,
    /// Live memory by address. C functions get addresses only.
    memory: Mutex<BTreeMap<u64, Weak<Memory>>>,
    /// By container and name.
    functions: Mutex<HashMap<(usize, String), Arc<Kernel>>>,
    /// The error of a function that could not return it.
    pending: Mutex<Option<DriverError>>,
}

/// The devices that contexts exist for.
static OPEN: Mutex<Vec<Weak<Gpu>>> = Mutex::new(Vec::new());

impl Gpu {
    /// Returns the shared part of a device.
    pub fn of(device: &Device) -> Result<Arc<Gpu>> {
        static NEXT: AtomicI32 = AtomicI32::new(0);
        let mut open = lock(&OPEN);
        open.retain(|gpu| gpu.strong_count() > 0);
        if let Some(known) = open.iter().filter_map(Weak::upgrade).find(|gpu| gpu.device == *device) {
            return Ok(known);
        }
        let jit = Jit::default();
        let gpu = Arc::new(Gpu {
            device: device.clone(),
            kernels: Kernels::new(device, &jit),
            jit,
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            stream: device.stream()?,
            default: Mutex::default(),
            memory: Mutex::default(),
            functions: Mutex::default(),
            pending: Mutex::default(),
        });
        open.push(Arc::downgrade(&gpu));
        Ok(gpu)
    }

    /// Returns the device of a number that [`Gpu::number`] gave.
    pub fn by_number(number: CUdevice) -> Result<Arc<Gpu>> {
        let found = lock(&OPEN).iter().filter_map(Weak::upgrade).find(|gpu| gpu.number == number);
        let missing = || DriverError::new(CUresult::CUDA_ERROR_INVALID_DEVICE, &format!("no context is open for device {number}"));
        found.ok_or_else(missing)
    }

    pub fn number(&self) -> CUdevice {
        self.number
    }

    pub fn attribute(&self, attribute: CUdevice_attribute) -> i32 {
        use CUdevice_attribute as A;
        let info = self.device.info();
        let capability = match info.arch {
            Arch::Nvidia(capability) => (capability.major, capability.minor),
            // What guards on `__CUDA_ARCH__` see there.
            _ => (9, 0),
        };
        let value = match attribute {
            A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK => info.max_threads_per_block as usize,
            A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK => info.shared_per_block,
            A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN => info.shared_per_block_max,
            A::CU_DEVICE_ATTRIBUTE_WARP_SIZE => info.wave_size as usize,
            A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT => info.compute_units as usize,
            A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR => capability.0 as usize,
            A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR => capability.1 as usize,
        };
        i32::try_from(value).unwrap_or(i32::MAX)
    }

    /// Returns the stream of everything that does not ask for its own.
    pub fn default_queue(self: &Arc<Gpu>) -> Arc<Queue> {
        let mut default = lock(&self.default);
        if let Some(queue) = default.upgrade() {
            return queue;
        }
        let queue = Queue::new(self, self.stream.clone());
        *default = Arc::downgrade(&queue);
        queue
    }

    pub fn new_queue(self: &Arc<Gpu>) -> Result<Arc<Queue>> {
        Ok(Queue::new(self, self.device.stream()?))
    }

    /// Allocates memory for work on a stream, uninitialized.
    pub fn alloc(self: &Arc<Gpu>, stream: &Stream, bytes: usize) -> Result<Arc<Memory>> {
        self.check()?;
        let buffer = stream.alloc::<u8>(bytes)?;
        let memory = Memory { gpu: self.clone(), buffer, users: Mutex::new(vec![stream.clone()]), failed: OnceLock::new() };
        let memory = Arc::new(memory);
        if bytes > 0 {
            lock(&self.memory).insert(memory.address(), Arc::downgrade(&memory));
        }
        Ok(memory)
    }

    /// Finds the live memory that an address is in: the memory and the offset.
    pub fn find(&self, address: u64, what: &str) -> Result<(Arc<Memory>, usize)> {
        let found = lock(&self.memory).range(..=address).next_back().and_then(|(_, memory)| memory.upgrade());
        let found = found.map(|memory| (address - memory.address(), memory)).filter(|(offset, memory)| *offset < memory.len() as u64);
        match found {
            Some((offset, memory)) => Ok((memory, offset as usize)),
            None => Err(DriverError::invalid(&format!("{what}: {address:#x} is not inside an allocation of {}", self.device.name()))),
        }
    }

    /// Finds `bytes` bytes from an address on.
    pub fn find_range(&self, address: u64, bytes: usize, what: &str) -> Result<Part> {
        let (memory, start) = self.find(address, what)?;
        if bytes > memory.len() - start {
            let reason = format!("{what}: {bytes} bytes from offset {start} exceed the allocation of {} bytes", memory.len());
            return Err(DriverError::invalid(&reason));
        }
        Ok(Part { memory, start, bytes })
    }

    /// Returns a kernel of a container, compiled if needed.
    pub fn function(&self, container: &Arc<Container>, name: &str) -> Result<Arc<Kernel>> {
        self.check()?;
        let key = (Arc::as_ptr(container).addr(), name.to_owned());
        if let Some(known) = lock(&self.functions).get(&key) {
            return Ok(known.clone());
        }
        // Not under the lock: other kernels need not wait for this compilation.
        let source = container.only(name, self.device.info().vendor)?;
        let kernel = Arc::new(self.load(&source, name)?);
        Ok(lock(&self.functions).entry(key).or_insert(kernel).clone())
    }

    /// Returns a kernel of a source of this crate's.
    pub fn load(&self, source: &KernelSource, name: &str) -> Result<Kernel> {
        Ok(self.jit.load(&self.device, source)?.kernel(name)?)
    }

    /// Returns the remembered error, which stays.
    pub fn pending(&self) -> Option<DriverError> {
        *lock(&self.pending)
    }

    /// Remembers the error of a function that cannot return it. The first is kept.
    pub fn record(&self, error: DriverError) {
        tracing::error!(device = self.device.name(), %error, "a call that cannot return errors failed; the next call that can returns this error");
        lock(&self.pending).get_or_insert(error);
    }

    /// Returns the remembered error, once.
    pub fn check(&self) -> Result<()> {
        lock(&self.pending).take().map_or(Ok(()), Err)
    }
}

/// A stream, and the way to it from the driver's handle.
pub(crate) struct Queue {
    pub gpu: Arc<Gpu>,
    pub stream: Stream,
}

/// Streams by the driver's handle: C functions get handles only.
static QUEUES: Mutex<BTreeMap<usize, Weak<Queue>>> = Mutex::new(BTreeMap::new());

impl Queue {
    fn new(gpu: &Arc<Gpu>, stream: Stream) -> Arc<Queue> {
        let queue = Arc::new(Queue { gpu: gpu.clone(), stream });
        lock(&QUEUES).insert(queue.stream.raw().addr(), Arc::downgrade(&queue));
        queue
    }

    /// Finds the stream of a handle.
    pub fn find(handle: usize) -> Option<Arc<Queue>> {
        lock(&QUEUES).get(&handle).and_then(Weak::upgrade)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let mut queues = lock(&QUEUES);
        let handle = self.stream.raw().addr();
        // Another thread may have entered its successor.
        if queues.get(&handle).is_some_and(|known| std::ptr::eq(known.as_ptr(), self)) {
            queues.remove(&handle);
        }
    }
}

/// Device memory, with the streams that use it.
pub(crate) struct Memory {
    pub gpu: Arc<Gpu>,
    buffer: Buffer<u8>,
    users: Mutex<Vec<Stream>>,
    /// Why its contents are not what they should be.
    failed: OnceLock<DriverError>,
}

impl Memory {
    pub fn address(&self) -> u64 {
        self.buffer.device_ptr()
    }

    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    pub fn slice(&self, start: usize, bytes: usize) -> Result<Slice<'_, u8>> {
        Ok(self.buffer.slice(start..start.saturating_add(bytes))?)
    }

    /// Prepares a use on a stream: it waits for the other streams that use this memory.
    ///
    /// Any use may write: candle passes results to kernels like inputs. Streams are never removed, so that one whose work is still to be
    /// queued is waited for, too.
    pub fn acquire(&self, stream: &Stream) -> Result<()> {
        if let Some(error) = self.failed.get() {
            return Err(*error);
        }
        let mut users = lock(&self.users);
        let mut known = false;
        for user in users.iter() {
            if user == stream {
                known = true;
                continue;
            }
            let event = Event::without_timing(user.device())?;
            event.record(user)?;
            stream.wait(&event)?;
        }
        if !known {
            users.push(stream.clone());
        }
        Ok(())
    }

    /// Prepares work that someone else queues on a stream, by address.
    pub fn acquire_external(&self, stream: &Stream) -> Result<()> {
        self.acquire(stream)?;
        // The pool learns of the use.
        Ok(stream.enqueue_external(&[Arg::from(self.buffer.view())][..], |_| ())?)
    }

    /// Marks the contents as wrong: later uses return the error.
    pub fn fail(&self, error: DriverError) {
        let _ = self.failed.set(error);
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.len() > 0 {
            lock(&self.gpu.memory).remove(&self.address());
        }
    }
}

/// A part of live memory.
pub(crate) struct Part {
    pub memory: Arc<Memory>,
    start: usize,
    bytes: usize,
}

impl Part {
    pub fn slice(&self) -> Result<Slice<'_, u8>> {
        self.memory.slice(self.start, self.bytes)
    }
}

/// The devices that contexts are counted by: NVIDIA's, AMD's, then the virtual ones if the environment asks for them. The device that
/// `WARPWAVE_DEVICE` names is the first.
pub(crate) struct Catalog {
    devices: Devices,
    names: Vec<String>,
}

impl Catalog {
    pub fn new() -> Result<Catalog> {
        let devices = warpwave::devices();
        let chosen = DeviceSpec::from_env()?;
        if chosen == DeviceSpec::Cpu {
            let reason =
                format!("{DEVICE_VARIABLE} is `cpu`, but a GPU is needed; unset it or set it to one of: {}", devices.names().join(", "));
            return Err(DriverError::new(CUresult::CUDA_ERROR_NO_DEVICE, &reason));
        }
        let listed = std::env::var_os("WARPWAVE_VGPU_DEVICES").is_some_and(|value| !value.is_empty());
        let mut names = Vec::new();
        for backend in devices.backends().iter().filter(|backend| !backend.is_virtual || listed) {
            names.extend(backend.driver.iter().flat_map(|driver| driver.device_names().iter().cloned()));
        }
        if let DeviceSpec::Named(first) = chosen {
            names.retain(|name| *name != first);
            names.insert(0, first);
        }
        Ok(Catalog { devices, names })
    }

    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Opens a device.
    pub fn open(&self, ordinal: usize) -> Result<Device> {
        if let Some(name) = self.names.get(ordinal) {
            return Ok(self.devices.get(name)?);
        }
        let names = self.names.join(", ");
        if !names.is_empty() {
            let reason = format!("no device with ordinal {ordinal}; available, from ordinal 0: {names}");
            return Err(DriverError::new(CUresult::CUDA_ERROR_INVALID_DEVICE, &reason));
        }
        let reasons = self.devices.backends().iter().filter(|backend| !backend.is_virtual).map(|backend| match &backend.driver {
            Ok(_) => format!("{}: no device found", backend.label),
            Err(error) => format!("{}: {error}", backend.label),
        });
        let reasons = reasons.collect::<Vec<_>>().join("; ");
        let reason = format!("no GPU found ({reasons}); {DEVICE_VARIABLE}={} selects the virtual AMD GPU", warpwave::DEFAULT_VIRTUAL);
        Err(DriverError::new(CUresult::CUDA_ERROR_NO_DEVICE, &reason))
    }
}
