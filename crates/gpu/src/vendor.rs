//! Differences between the vendors that are not cells of the table: enum values, and calls with another signature.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use crate::arch::Arch;
use crate::table::{DevicePtr, Failure, Handle, IpcHandle, Table, Vendor};

macro_rules! attributes {
    ( $( $name:ident = $cu_name:literal $cu:literal | $hip_name:literal $hip:literal; )* ) => {
        /// A numeric property of a device.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum Attribute { $( $name ),* }

        impl Attribute {
            /// Every attribute with each vendor's constant and its value.
            pub const ALL: &'static [(Attribute, (&'static str, c_int), (&'static str, c_int))] =
                &[ $( (Attribute::$name, ($cu_name, $cu), ($hip_name, $hip)) ),* ];

            /// Returns the vendor's value. The other vendor's value would be valid too, with another meaning.
            pub fn number(self, vendor: Vendor) -> c_int {
                match (vendor, self) {
                    $( (Vendor::Nvidia, Attribute::$name) => $cu, (Vendor::Amd, Attribute::$name) => $hip, )*
                }
            }
        }
    };
}

// HIP's values are the same from ROCm 5.0 to 7.x.
attributes! {
    MaxThreadsPerBlock = "CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK" 1 | "hipDeviceAttributeMaxThreadsPerBlock" 56;
    MaxBlockX = "CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X" 2 | "hipDeviceAttributeMaxBlockDimX" 26;
    MaxBlockY = "CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y" 3 | "hipDeviceAttributeMaxBlockDimY" 27;
    MaxBlockZ = "CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z" 4 | "hipDeviceAttributeMaxBlockDimZ" 28;
    MaxGridX = "CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X" 5 | "hipDeviceAttributeMaxGridDimX" 29;
    MaxGridY = "CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y" 6 | "hipDeviceAttributeMaxGridDimY" 30;
    MaxGridZ = "CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z" 7 | "hipDeviceAttributeMaxGridDimZ" 31;
    WaveSize = "CU_DEVICE_ATTRIBUTE_WARP_SIZE" 10 | "hipDeviceAttributeWarpSize" 87;
    ComputeUnits = "CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT" 16 | "hipDeviceAttributeMultiprocessorCount" 63;
    SharedPerBlock = "CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK" 8 | "hipDeviceAttributeMaxSharedMemoryPerBlock" 74;
    SharedPerUnit = "CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR" 81 | "hipDeviceAttributeMaxSharedMemoryPerMultiprocessor" 10002;
    RegistersPerBlock = "CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK" 12 | "hipDeviceAttributeMaxRegistersPerBlock" 71;
    ThreadsPerUnit = "CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR" 39 | "hipDeviceAttributeMaxThreadsPerMultiProcessor" 57;
    ClockKhz = "CU_DEVICE_ATTRIBUTE_CLOCK_RATE" 13 | "hipDeviceAttributeClockRate" 5;
    MemoryClockKhz = "CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE" 36 | "hipDeviceAttributeMemoryClockRate" 60;
    MemoryBusBits = "CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH" 37 | "hipDeviceAttributeMemoryBusWidth" 59;
    L2Bytes = "CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE" 38 | "hipDeviceAttributeL2CacheSize" 19;
    CapabilityMajor = "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR" 75 | "hipDeviceAttributeComputeCapabilityMajor" 23;
    CapabilityMinor = "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR" 76 | "hipDeviceAttributeComputeCapabilityMinor" 61;
    ManagedMemory = "CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY" 83 | "hipDeviceAttributeManagedMemory" 24;
    ConcurrentManaged = "CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS" 89 | "hipDeviceAttributeConcurrentManagedAccess" 9;
    CooperativeLaunch = "CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH" 95 | "hipDeviceAttributeCooperativeLaunch" 10;
    Integrated = "CU_DEVICE_ATTRIBUTE_INTEGRATED" 18 | "hipDeviceAttributeIntegrated" 16;
}

/// CUDA's limit of shared memory with an opt-in. HIP's attribute of that name means something else and is missing in ROCm 5's headers: AMD
/// needs no opt-in.
pub(crate) const CUDA_SHARED_OPT_IN: c_int = 97;
/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
pub(crate) const CUDA_FUNCTION_MAX_DYNAMIC_SHARED: c_int = 8;
/// `CU_POINTER_ATTRIBUTE_MEMORY_TYPE`, on both.
pub(crate) const POINTER_MEMORY_TYPE: c_int = 2;
/// `CU_POINTER_ATTRIBUTE_IS_MANAGED`, on both.
pub(crate) const POINTER_IS_MANAGED: c_int = 8;
/// `CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL`, on both.
pub(crate) const POINTER_DEVICE_ORDINAL: c_int = 9;

/// Error codes, equal on both vendors where both have them.
pub(crate) mod code {
    pub const INVALID_VALUE: i32 = 1;
    pub const OUT_OF_MEMORY: i32 = 2;
    pub const NOT_INITIALIZED: i32 = 3;
    pub const NO_DEVICE: i32 = 100;
    pub const INVALID_DEVICE: i32 = 101;
    pub const INVALID_IMAGE: i32 = 200;
    pub const NO_BINARY_FOR_GPU: i32 = 209;
    pub const UNSUPPORTED_PTX: i32 = 222;
    pub const NOT_FOUND: i32 = 500;
    pub const NOT_READY: i32 = 600;
    pub const PEER_ALREADY_ENABLED: i32 = 704;
    pub const CAPTURE_INVALIDATED: i32 = 901;
    pub const GRAPH_UPDATE_FAILED: i32 = 910;
    /// HIP only: the runtime ran out of memory.
    pub const HIP_RUNTIME_MEMORY: i32 = 1052;

    /// Returns whether the device is unusable in this process after this code.
    pub fn is_fatal(code: i32) -> bool {
        // Illegal address, launch timeout, assert, hardware stack error … launch failure, ECC error.
        matches!(code, 214 | 700 | 702 | 709 | 710 | 714..=719)
    }
}

/// The kind of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryKind {
    /// Device memory.
    Device,
    /// Page-locked host memory.
    Host,
    /// Unified memory, migrated by the driver.
    Unified,
}

/// Converts the vendor's memory type. HIP's values changed with version 6.
pub(crate) fn memory_kind(vendor: Vendor, major: u32, number: u32) -> Option<MemoryKind> {
    use MemoryKind::{Device, Host, Unified};
    match (vendor, number) {
        (Vendor::Nvidia, 1) => Some(Host),
        (Vendor::Nvidia, 2) => Some(Device),
        (Vendor::Nvidia, 4) => Some(Unified),
        (Vendor::Amd, 0) if major < 6 => Some(Host),
        (Vendor::Amd, 1) if major < 6 => Some(Device),
        (Vendor::Amd, 3) if major < 6 => Some(Unified),
        (Vendor::Amd, 1) => Some(Host),
        (Vendor::Amd, 2) => Some(Device),
        (Vendor::Amd, 3 | 11) => Some(Unified),
        _ => None,
    }
}

/// Returns the vendor's memory-type number of device memory.
pub(crate) fn device_memory_type(vendor: Vendor, major: u32) -> c_int {
    if vendor == Vendor::Amd && major < 6 { 1 } else { 2 }
}

/// How calls identify a device: its ordinal, and CUDA's primary context.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeviceContext {
    pub ordinal: c_int,
    pub context: Handle,
}

// SAFETY: the context handle is an opaque value that the driver accepts from any thread.
unsafe impl Send for DeviceContext {}
// SAFETY: as above.
unsafe impl Sync for DeviceContext {}

/// Retains CUDA's primary context; HIP needs none.
pub(crate) fn retain_context(table: &Table, ordinal: c_int, device: c_int) -> Result<DeviceContext, Failure> {
    let mut context: Handle = std::ptr::null_mut();
    if table.vendor() == Vendor::Nvidia {
        // SAFETY: `context` outlives the call; `device` came from the driver.
        unsafe { table.primary_context_retain(&mut context, device)? };
    }
    Ok(DeviceContext { ordinal, context })
}

/// Makes a device current on this thread.
///
/// Queries the driver rather than a thread-local: another library in the process may have changed it.
#[inline]
pub(crate) fn activate(table: &Table, context: DeviceContext) -> Result<(), Failure> {
    match table.vendor() {
        Vendor::Nvidia => {
            let mut current: Handle = std::ptr::null_mut();
            // SAFETY: `current` outlives the call.
            unsafe { table.context_get_current(&mut current)? };
            if current == context.context {
                return Ok(());
            }
            // SAFETY: the context was retained and is never released.
            unsafe { table.context_set_current(context.context) }
        }
        Vendor::Amd => {
            let mut current: c_int = -1;
            // SAFETY: `current` outlives the call.
            unsafe { table.get_device(&mut current)? };
            if current == context.ordinal {
                return Ok(());
            }
            // SAFETY: the driver accepts any ordinal.
            unsafe { table.set_device(context.ordinal) }
        }
    }
}

/// Returns the thread's current device, for `activate` to restore.
pub(crate) fn current(table: &Table) -> Result<DeviceContext, Failure> {
    let mut context = DeviceContext { ordinal: 0, context: std::ptr::null_mut() };
    // SAFETY: the outputs outlive the calls.
    unsafe {
        match table.vendor() {
            Vendor::Nvidia => table.context_get_current(&mut context.context)?,
            Vendor::Amd => table.get_device(&mut context.ordinal)?,
        }
    }
    Ok(context)
}

/// Maps an allocation of another process.
///
/// # Safety
/// The handle must come from a live allocation.
pub(crate) unsafe fn open_ipc(table: &Table, handle: IpcHandle) -> Result<DevicePtr, Failure> {
    const LAZY_PEER_ACCESS: c_uint = 1;
    /// The same in HIP before version 6.
    const OLD_LAZY_PEER_ACCESS: c_uint = 0;
    let mut ptr = 0;
    // SAFETY: the output outlives the call; the caller guarantees the handle.
    let outcome = unsafe { table.ipc_open_handle(&mut ptr, handle, LAZY_PEER_ACCESS) };
    match (table.vendor(), outcome) {
        // It is unclear which version changed the value; HIP rejects the wrong one.
        (Vendor::Amd, Err(Failure::Code { code: code::INVALID_VALUE, .. })) => {
            // SAFETY: as above.
            unsafe { table.ipc_open_handle(&mut ptr, handle, OLD_LAZY_PEER_ACCESS)? };
        }
        (_, outcome) => outcome?,
    }
    Ok(ptr)
}

/// Copies between two devices of one vendor.
///
/// # Safety
/// Both ranges must be live allocations of at least `bytes` bytes, and `stream` a live stream of either device.
pub(crate) unsafe fn copy_peer(
    table: &Table,
    dst: (DevicePtr, DeviceContext),
    src: (DevicePtr, DeviceContext),
    bytes: usize,
    stream: Handle,
) -> Result<(), Failure> {
    // SAFETY: the caller guarantees it.
    unsafe {
        match table.vendor() {
            Vendor::Nvidia => table.copy_peer_by_context(dst.0, dst.1.context, src.0, src.1.context, bytes, stream),
            Vendor::Amd => table.copy_peer_by_ordinal(dst.0, dst.1.ordinal, src.0, src.1.ordinal, bytes, stream),
        }
    }
}

/// Lets the current device access the peer's memory. Enabling it twice is not an error.
pub(crate) fn enable_peer(table: &Table, peer: DeviceContext) -> Result<(), Failure> {
    // SAFETY: the context or ordinal is live.
    let outcome = unsafe {
        match table.vendor() {
            Vendor::Nvidia => table.enable_peer_by_context(peer.context, 0),
            Vendor::Amd => table.enable_peer_by_ordinal(peer.ordinal, 0),
        }
    };
    match outcome {
        Err(Failure::Code { code: code::PEER_ALREADY_ENABLED, .. }) => Ok(()),
        other => other,
    }
}

/// Returns the smallest grid that fills the device and the block size with the best occupancy.
///
/// # Safety
/// `function` must be a live kernel of the current device.
pub(crate) unsafe fn best_block(table: &Table, function: Handle, shared: usize) -> Result<(c_int, c_int), Failure> {
    let (mut grid, mut block) = (0, 0);
    // SAFETY: the outputs outlive the call; the caller guarantees the function.
    unsafe {
        match table.vendor() {
            Vendor::Nvidia => table.best_block_with_callback(&mut grid, &mut block, function, std::ptr::null(), shared, 0)?,
            Vendor::Amd => table.best_block(&mut grid, &mut block, function, shared, 0)?,
        }
    }
    Ok((grid, block))
}

/// Returns the name and the description of an error code.
pub(crate) fn error_text(table: &Table, code: i32) -> (String, String) {
    let query = |row: &dyn Fn(*mut *const c_char) -> Result<(), Failure>, old: &str| {
        let mut text: *const c_char = std::ptr::null();
        if row(&mut text).is_err() && table.vendor() == Vendor::Amd {
            // Before 5.3 HIP returns the text itself instead of filling a pointer.
            if let Some(address) = table.source().symbol(old) {
                // SAFETY: `const char* hipGetErrorName(hipError_t)`, and the same shape for the sentence, in every version.
                let call: unsafe extern "C" fn(c_int) -> *const c_char = unsafe { std::mem::transmute(address) };
                // SAFETY: any code is accepted.
                text = unsafe { call(code) };
            }
        }
        // SAFETY: drivers return static NUL-terminated strings, or null for an unknown number.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    };
    // SAFETY: the output outlives the call, and any code is accepted.
    let name = query(&|out| unsafe { table.error_name(code, out) }, "hipGetErrorName");
    // SAFETY: as above.
    let text = query(&|out| unsafe { table.error_text(code, out) }, "hipGetErrorString");
    (name.unwrap_or_else(|| format!("error {code}")), text.unwrap_or_else(|| "no description".to_owned()))
}

/// Reads the architecture.
pub(crate) fn architecture(table: &Table, device: c_int) -> Result<Arch, Failure> {
    match table.vendor() {
        Vendor::Nvidia => {
            let (mut major, mut minor) = (0, 0);
            // SAFETY: the outputs outlive the calls.
            unsafe {
                table.device_attribute(&mut major, Attribute::CapabilityMajor.number(Vendor::Nvidia), device)?;
                table.device_attribute(&mut minor, Attribute::CapabilityMinor.number(Vendor::Nvidia), device)?;
            }
            Ok(Arch::compute_capability(u32::try_from(major).unwrap_or(0), u32::try_from(minor).unwrap_or(0)))
        }
        Vendor::Amd => gcn_arch_name(table, device),
    }
}

/// Reads the architecture from HIP's property struct, the only place that has it. The struct's layout changed with ROCm 6, and the plain
/// symbol keeps the old layout: try the new one first, with a larger buffer than either needs, and accept only a valid name.
fn gcn_arch_name(table: &Table, device: c_int) -> Result<Arch, Failure> {
    const BYTES: usize = 8192;
    #[repr(align(16))]
    struct Properties([u8; BYTES]);
    let mut properties = Box::new(Properties([0; BYTES]));
    let out = properties.0.as_mut_ptr().cast::<c_void>();
    // SAFETY: the largest known struct has 1472 bytes, the buffer 8192.
    let offset = match unsafe { table.properties_r0600(out, device) } {
        Ok(()) => 1160,
        Err(Failure::MissingSymbol(_)) => {
            // SAFETY: as above.
            unsafe { table.properties_r0000(out, device)? };
            396
        }
        Err(failure) => return Err(failure),
    };
    let at = |start: usize| {
        let bytes = &properties.0[start..(start + 256).min(BYTES)];
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
        std::str::from_utf8(&bytes[..end]).ok().and_then(Arch::from_hip)
    };
    // In an unknown layout the name is at another offset.
    let arch = at(offset).or_else(|| Arch::find_hip(&properties.0).and_then(at));
    arch.ok_or(Failure::Code { call: "hipGetDeviceProperties", code: code::INVALID_VALUE })
}

/// Formats the UUID.
pub(crate) fn uuid_text(vendor: Vendor, raw: [u8; 16]) -> String {
    match vendor {
        Vendor::Nvidia => {
            let hex: String = raw.iter().map(|b| format!("{b:02x}")).collect();
            format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
        }
        // HIP returns hexadecimal digits.
        Vendor::Amd => format!("GPU-{}", String::from_utf8_lossy(&raw).trim_end_matches('\0')),
    }
}
