//! A device: its properties, its memory, and making it current on a thread.

use std::ffi::{CStr, c_char, c_int};
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockWriteGuard, TryLockError};
use std::time::{Duration, Instant};

use crate::arch::{Arch, AsyncCopy, MatrixUnits};
use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::hardware::{self, Card};
use crate::pool::{Pool, PoolStats};
use crate::table::{Failure, Table, Vendor};
use crate::vendor::{self, Attribute, DeviceContext};

/// Properties of a device.
#[derive(Debug, Clone)]
pub struct DeviceInfo {
    /// `cuda:0`, `rocm:1`, `vgpu:gfx90a`.
    pub name: String,
    /// The vendor's name of the model.
    pub model: String,
    /// The vendor whose API drives it.
    pub vendor: Vendor,
    /// Its index within its driver.
    pub ordinal: usize,
    /// Architecture with target features: `sm_90`, `gfx90a:sramecc+:xnack-`.
    pub arch: Arch,
    /// Whether the CPU emulates it.
    pub is_virtual: bool,
    /// Matrix instructions.
    pub matrix_units: MatrixUnits,
    /// Asynchronous copies to shared memory.
    pub async_copy: AsyncCopy,
    /// Whether thread blocks can form clusters that share their shared memory (sm_90 and later).
    pub clusters: bool,
    /// Whether programmatic dependent launch (PDL) works: a kernel may start before the previous one ends (sm_90 and later).
    pub dependent_launch: bool,
    /// Lanes per wave (warp).
    pub wave_size: u32,
    /// Multiprocessors (compute units).
    pub compute_units: u32,
    /// Memory in bytes.
    pub total_memory: usize,
    /// `GPU-…`, if the driver reports it.
    pub uuid: Option<String>,
    /// `0000:41:00.0`, if the driver reports it.
    pub pci: Option<String>,
    /// Shared memory (LDS) per block, in bytes.
    pub shared_per_block: usize,
    /// Shared memory per block with an opt-in, in bytes.
    pub shared_per_block_max: usize,
    /// Shared memory per compute unit, in bytes.
    pub shared_per_unit: usize,
    /// Registers per block.
    pub registers_per_block: u32,
    /// Threads per block.
    pub max_threads_per_block: u32,
    /// Threads per compute unit.
    pub max_threads_per_unit: u32,
    /// Largest block per dimension.
    pub max_block: [u32; 3],
    /// Largest grid per dimension.
    pub max_grid: [u32; 3],
    /// Core clock.
    pub clock_khz: u32,
    /// Memory clock.
    pub memory_clock_khz: u32,
    /// Width of the memory bus.
    pub memory_bus_bits: u32,
    /// L2 cache in bytes.
    pub l2_bytes: usize,
    /// Whether cooperative launches work: blocks of one launch may synchronize with each other.
    pub cooperative_launch: bool,
    /// Whether unified memory works.
    pub unified_memory: bool,
    /// Whether host and device may access unified memory concurrently.
    pub concurrent_unified: bool,
    /// Whether it shares its memory with the host.
    pub integrated: bool,
    /// Its entry in the table of AMD cards.
    pub card: Option<Card>,
}

impl DeviceInfo {
    /// Returns what an architecture's name tells, for plans without a device; names are empty and the rest is 0.
    pub fn of_arch(arch: Arch) -> DeviceInfo {
        DeviceInfo {
            name: String::new(),
            model: String::new(),
            vendor: arch.vendor(),
            ordinal: 0,
            arch,
            is_virtual: false,
            matrix_units: arch.matrix_units(),
            async_copy: arch.async_copy(),
            clusters: arch.is_compute_capability_at_least(9, 0),
            dependent_launch: arch.is_compute_capability_at_least(9, 0),
            wave_size: arch.wave_size(),
            compute_units: 0,
            total_memory: 0,
            uuid: None,
            pci: None,
            shared_per_block: 0,
            shared_per_block_max: 0,
            shared_per_unit: 0,
            registers_per_block: 0,
            max_threads_per_block: 0,
            max_threads_per_unit: 0,
            max_block: [0; 3],
            max_grid: [0; 3],
            clock_khz: 0,
            memory_clock_khz: 0,
            memory_bus_bits: 0,
            l2_bytes: 0,
            cooperative_launch: false,
            unified_memory: false,
            concurrent_unified: false,
            integrated: false,
            card: None,
        }
    }
}

/// Free and total bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Free now, shared by all processes.
    pub free: usize,
    /// Total.
    pub total: usize,
}

/// After this time a waiting call has surely reached the driver.
const LONG_WAIT: Duration = Duration::from_millis(100);

/// A GPU. Cheap to clone; usable from any thread.
#[derive(Clone)]
pub struct Device(pub(crate) Arc<DeviceInner>);

pub(crate) struct DeviceInner {
    driver: Arc<Driver>,
    context: DeviceContext,
    info: DeviceInfo,
    pub(crate) pool: Pool,
    /// Number of streams being captured. Meanwhile no memory is freed: that would wait for the device, which ends captures.
    pub(crate) captures: AtomicUsize,
    /// Read-locked by device synchronizations, write-locked while a capture begins, which a synchronization would end.
    waits: RwLock<()>,
    /// Ordinals of peers whose memory kernels here may access.
    accessible_peers: Mutex<Vec<c_int>>,
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({})", self.0.info.name)
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
impl Eq for Device {}

impl Device {
    pub(crate) fn open(driver: &Arc<Driver>, ordinal: usize, name: &str) -> Result<Device> {
        let table = &driver.table;
        let fail = |failure| driver.error(name, failure);
        let mut handle = 0;
        let number = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
        // SAFETY: `handle` outlives the call.
        unsafe { table.device_get(&mut handle, number) }.map_err(fail)?;
        let arch = vendor::architecture(table, handle).map_err(fail)?;
        let info = read_info(driver, arch, handle, ordinal, name).map_err(fail)?;
        let context = vendor::retain_context(table, number, handle).map_err(fail)?;
        let inner = DeviceInner {
            driver: driver.clone(),
            context,
            info,
            pool: Pool::default(),
            captures: AtomicUsize::new(0),
            waits: RwLock::default(),
            accessible_peers: Mutex::default(),
        };
        Ok(Device(Arc::new(inner)))
    }

    /// Returns its properties.
    pub fn info(&self) -> &DeviceInfo {
        &self.0.info
    }

    /// Returns its name: `cuda:0`.
    pub fn name(&self) -> &str {
        &self.0.info.name
    }

    /// Returns its driver.
    pub fn driver(&self) -> &Arc<Driver> {
        &self.0.driver
    }

    /// Returns free and total memory.
    pub fn memory(&self) -> Result<MemoryInfo> {
        let (mut free, mut total) = (0, 0);
        let table = self.activate()?;
        // SAFETY: the outputs outlive the call.
        self.check(unsafe { table.mem_info(&mut free, &mut total) })?;
        Ok(MemoryInfo { free, total })
    }

    /// Waits for all work on the device. Fails while one of its streams is captured: the driver would end the capture.
    pub fn synchronize(&self) -> Result<()> {
        let _waits = self.0.waits.read().unwrap_or_else(PoisonError::into_inner);
        if self.is_capturing() {
            return Err(Error::Capturing { what: "synchronizing the device" });
        }
        let table = self.activate()?;
        // SAFETY: no arguments.
        self.check(unsafe { table.device_synchronize() })
    }

    /// Returns the memory pool's statistics.
    pub fn pool_stats(&self) -> PoolStats {
        self.0.pool.stats()
    }

    /// Frees the pool's unused memory; returns the bytes freed.
    pub fn trim_pool(&self) -> Result<usize> {
        self.0.pool.trim(self)
    }

    /// Limits the bytes the pool may allocate; `None` removes the limit.
    pub fn set_pool_cap(&self, cap: Option<usize>) {
        self.0.pool.set_cap(cap);
    }

    /// Returns whether this device can access `peer`'s memory directly.
    pub fn can_access(&self, peer: &Device) -> Result<bool> {
        if !Arc::ptr_eq(self.driver(), peer.driver()) {
            return Ok(false);
        }
        let (mut device, mut other, mut can) = (0, 0, 0);
        let table = self.activate()?;
        // SAFETY: the outputs outlive the calls.
        self.check(unsafe { table.device_get(&mut device, self.context().ordinal) })?;
        // SAFETY: as above.
        self.check(unsafe { table.device_get(&mut other, peer.context().ordinal) })?;
        // SAFETY: as above.
        self.check(unsafe { table.can_access_peer(&mut can, device, other) })?;
        Ok(can != 0)
    }

    /// Lets kernels on this device access `peer`'s memory.
    pub fn enable_access(&self, peer: &Device) -> Result<()> {
        if !self.can_access(peer)? {
            let device = format!("{} for {}", self.name(), peer.name());
            return Err(Error::Unsupported { what: "peer access".to_owned(), device });
        }
        let table = self.activate()?;
        self.check(vendor::enable_peer(table, peer.context()))?;
        self.0.accessible_peers.lock().unwrap_or_else(PoisonError::into_inner).push(peer.context().ordinal);
        Ok(())
    }

    /// Returns whether kernels on this device may use memory of `other`.
    pub(crate) fn reaches(&self, other: &Device) -> bool {
        let known = || self.0.accessible_peers.lock().unwrap_or_else(PoisonError::into_inner).contains(&other.context().ordinal);
        self == other || Arc::ptr_eq(self.driver(), other.driver()) && known()
    }

    /// Blocks device synchronizations while a capture begins. Returns `None` if one has been waiting for long: it is inside the driver, where
    /// a new capture is harmless, and it may be waiting for this thread.
    pub(crate) fn block_waits(&self) -> Option<RwLockWriteGuard<'_, ()>> {
        let started = Instant::now();
        loop {
            match self.0.waits.try_write() {
                Ok(guard) => return Some(guard),
                Err(TryLockError::Poisoned(guard)) => return Some(guard.into_inner()),
                Err(TryLockError::WouldBlock) if started.elapsed() > LONG_WAIT => return None,
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        }
    }

    pub(crate) fn is_capturing(&self) -> bool {
        self.0.captures.load(Ordering::Acquire) > 0
    }

    pub(crate) fn context(&self) -> DeviceContext {
        self.0.context
    }

    /// Makes it the thread's current device, for other libraries.
    pub fn make_current(&self) -> Result<()> {
        self.activate().map(drop)
    }

    /// Makes this device current on the thread and returns the table to call.
    pub(crate) fn activate(&self) -> Result<&Table> {
        self.0.activate().map_err(|failure| self.error(failure))
    }

    #[inline]
    pub(crate) fn check(&self, outcome: Result<(), Failure>) -> Result<()> {
        outcome.map_err(|failure| self.error(failure))
    }

    #[cold]
    pub(crate) fn error(&self, failure: Failure) -> Error {
        self.0.driver.error(self.name(), failure)
    }
}

/// Restores the thread's current device when dropped, so that calls of this crate do not change it. Created by [`Driver::keep_current`].
pub struct CurrentDevice<'a> {
    driver: &'a Driver,
    context: DeviceContext,
    /// The current device belongs to the thread.
    _thread: PhantomData<*const ()>,
}

impl Driver {
    /// Saves the thread's current device.
    pub fn keep_current(&self) -> Result<CurrentDevice<'_>> {
        let context = vendor::current(&self.table).map_err(|failure| self.error(self.label(), failure))?;
        Ok(CurrentDevice { driver: self, context, _thread: PhantomData })
    }
}

impl Drop for CurrentDevice<'_> {
    fn drop(&mut self) {
        // This also restores the absence of a CUDA context.
        if let Err(failure) = vendor::activate(&self.driver.table, self.context) {
            tracing::warn!(?failure, "the thread's current device could not be restored");
        }
    }
}

impl DeviceInner {
    #[inline]
    pub(crate) fn activate(&self) -> Result<&Table, Failure> {
        vendor::activate(&self.driver.table, self.context)?;
        Ok(&self.driver.table)
    }
}

impl Drop for DeviceInner {
    fn drop(&mut self) {
        // Every buffer holds its device, so only the pool's free blocks are left.
        if let Ok(table) = self.activate() {
            self.pool.release_all(table);
        }
    }
}

fn read_info(driver: &Driver, arch: Arch, device: c_int, ordinal: usize, name: &str) -> Result<DeviceInfo, Failure> {
    let table = &driver.table;
    let vendor = table.vendor();
    let raw = |number: c_int| {
        let mut value = 0;
        // SAFETY: `value` outlives the call. An unknown attribute is an error, not a crash.
        unsafe { table.device_attribute(&mut value, number, device) }.map(|()| u32::try_from(value).unwrap_or(0))
    };
    // An attribute that the driver lacks is 0: it is only displayed, or a limit that is checked if known.
    let get = |attribute: Attribute| raw(attribute.number(vendor)).unwrap_or(0);
    let text = |call: &dyn Fn(*mut c_char, c_int) -> Result<(), Failure>| {
        let mut buffer = [0u8; 256];
        call(buffer.as_mut_ptr().cast(), 255)?;
        Ok(CStr::from_bytes_until_nul(&buffer).unwrap_or_default().to_string_lossy().trim().to_owned())
    };
    // SAFETY: the driver writes at most the length it is given.
    let model = text(&|out, len| unsafe { table.device_name(out, len, device) })?;
    // SAFETY: as above.
    let pci = text(&|out, len| unsafe { table.device_pci_bus_id(out, len, device) }).ok();
    let mut total_memory = 0;
    // SAFETY: the output outlives the call.
    unsafe { table.device_total_mem(&mut total_memory, device)? };
    let mut uuid = [0; 16];
    // SAFETY: the output outlives the call.
    let uuid = unsafe { table.device_uuid(&mut uuid, device) }.ok().map(|()| vendor::uuid_text(vendor, uuid));
    let shared_per_block = get(Attribute::SharedPerBlock) as usize;
    let opt_in = if vendor == Vendor::Nvidia { raw(vendor::CUDA_SHARED_OPT_IN).unwrap_or(0) as usize } else { 0 };
    Ok(DeviceInfo {
        name: name.to_owned(),
        card: hardware::card_of(&model, arch),
        model,
        vendor,
        ordinal,
        is_virtual: driver.is_virtual(),
        wave_size: raw(Attribute::WaveSize.number(vendor))?,
        compute_units: get(Attribute::ComputeUnits),
        total_memory,
        uuid,
        pci,
        shared_per_block,
        shared_per_block_max: opt_in.max(shared_per_block),
        shared_per_unit: get(Attribute::SharedPerUnit) as usize,
        registers_per_block: get(Attribute::RegistersPerBlock),
        max_threads_per_block: get(Attribute::MaxThreadsPerBlock),
        max_threads_per_unit: get(Attribute::ThreadsPerUnit),
        max_block: [Attribute::MaxBlockX, Attribute::MaxBlockY, Attribute::MaxBlockZ].map(get),
        max_grid: [Attribute::MaxGridX, Attribute::MaxGridY, Attribute::MaxGridZ].map(get),
        clock_khz: get(Attribute::ClockKhz),
        memory_clock_khz: get(Attribute::MemoryClockKhz),
        memory_bus_bits: get(Attribute::MemoryBusBits),
        l2_bytes: get(Attribute::L2Bytes) as usize,
        cooperative_launch: get(Attribute::CooperativeLaunch) != 0,
        unified_memory: get(Attribute::ManagedMemory) != 0,
        concurrent_unified: get(Attribute::ConcurrentManaged) != 0,
        integrated: get(Attribute::Integrated) != 0,
        ..DeviceInfo::of_arch(arch)
    })
}
