//! The table of driver calls: each row is an operation with one Rust signature and the symbol of each vendor.
//!
//! HIP mirrors the CUDA driver API: nearly every row has two symbols of the same C signature. `-` marks a vendor without such a symbol; the
//! few operations whose signatures differ have adapters in [`crate::vendor`].
//!
//! Symbols include their version suffix: `cuMemAlloc` without `_v2` resolves too, but truncates sizes to 32 bits. A test compiles every row
//! against the vendors' headers.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::fmt;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::library::Library;
use crate::tensor_map::TensorMap;

/// Whose API a driver speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Vendor {
    /// The CUDA driver API.
    Nvidia,
    /// The HIP API.
    Amd,
}

impl fmt::Display for Vendor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Vendor::Nvidia => "CUDA",
            Vendor::Amd => "HIP",
        })
    }
}

/// Where a table's symbols come from.
pub enum Source {
    /// A vendor library.
    Library(Library),
    /// Functions in this process: the virtual GPU or a fake driver.
    InProcess(fn(&str) -> Option<*const c_void>),
}

impl Source {
    /// Returns the address of `symbol`.
    pub fn symbol(&self, symbol: &str) -> Option<*const c_void> {
        match self {
            Source::Library(library) => library.symbol(symbol),
            Source::InProcess(lookup) => lookup(symbol),
        }
    }
}

/// Why a driver call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The driver returned an error code.
    Code {
        /// The vendor symbol.
        call: &'static str,
        /// The error code.
        code: i32,
    },
    /// The library does not export the symbol.
    MissingSymbol(&'static str),
    /// The vendor has no such call.
    NoSuchCall(&'static str),
}

/// A row's address: null before the first use, `MISSING` if the library does not export it.
#[derive(Default)]
#[doc(hidden)]
pub struct Slot(AtomicPtr<c_void>);

const MISSING: *mut c_void = std::ptr::dangling_mut::<u8>().cast();

impl Slot {
    #[inline]
    #[doc(hidden)]
    pub fn get(&self, source: &Source, symbol: Option<&'static str>, row: &'static str) -> Result<*mut c_void, Failure> {
        // Relaxed suffices: the pointer is the whole value, and it never changes once set.
        let known = self.0.load(Ordering::Relaxed);
        if !known.is_null() && known != MISSING {
            return Ok(known);
        }
        self.resolve(known, source, symbol, row)
    }

    #[cold]
    fn resolve(
        &self,
        known: *mut c_void,
        source: &Source,
        symbol: Option<&'static str>,
        row: &'static str,
    ) -> Result<*mut c_void, Failure> {
        let symbol = symbol.ok_or(Failure::NoSuchCall(row))?;
        if known == MISSING {
            return Err(Failure::MissingSymbol(symbol));
        }
        let address = source.symbol(symbol).map_or(MISSING, <*const c_void>::cast_mut);
        self.0.store(address, Ordering::Relaxed);
        if address == MISSING { Err(Failure::MissingSymbol(symbol)) } else { Ok(address) }
    }
}

/// A row of the table as data.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Name of the operation.
    pub name: &'static str,
    /// CUDA's symbol.
    pub cuda: Option<&'static str>,
    /// HIP's symbol.
    pub hip: Option<&'static str>,
    /// Size in bytes of each parameter, in order.
    pub parameters: &'static [usize],
}

impl Row {
    /// Returns the symbol of a vendor.
    pub fn symbol(&self, vendor: Vendor) -> Option<&'static str> {
        match vendor {
            Vendor::Nvidia => self.cuda,
            Vendor::Amd => self.hip,
        }
    }
}

/// `"symbol"` or `-`.
#[doc(hidden)]
#[macro_export]
macro_rules! table_cell {
    (-) => {
        None
    };
    ($symbol:literal) => {
        Some($symbol)
    };
}

/// Declares a two-vendor table; see `table.rs` for the driver's and `rtc.rs` in `warpwave-jit` for the compilers'.
#[macro_export]
macro_rules! two_vendor_table {
    (
        $(#[$meta:meta])* $vis:vis struct $table:ident;
        $( $(#[$doc:meta])* $row:ident ( $($arg:ident : $ty:ty),* $(,)? ) = $cuda:tt | $hip:tt; )*
    ) => {
        $(#[$meta])*
        $vis struct $table {
            vendor: $crate::Vendor,
            source: $crate::Source,
            $( $row: $crate::TableSlot, )*
        }

        #[allow(clippy::too_many_arguments)]
        impl $table {
            /// Every row, as data.
            $vis const ROWS: &'static [$crate::Row] = &[ $( $crate::Row {
                name: stringify!($row),
                cuda: $crate::table_cell!($cuda),
                hip: $crate::table_cell!($hip),
                parameters: &[ $( size_of::<$ty>() ),* ],
            } ),* ];

            /// Creates a table whose symbols are looked up in `source` at their first use.
            $vis fn new(vendor: $crate::Vendor, source: $crate::Source) -> Self {
                $table { vendor, source, $( $row: Default::default(), )* }
            }

            /// Returns whose symbols it uses.
            $vis fn vendor(&self) -> $crate::Vendor {
                self.vendor
            }

            /// Returns where the symbols come from.
            $vis fn source(&self) -> &$crate::Source {
                &self.source
            }

            $(
                $(#[$doc])*
                ///
                /// # Safety
                /// The arguments must be valid for the vendor's call.
                #[inline]
                $vis unsafe fn $row(&self, $($arg: $ty),*) -> Result<(), $crate::Failure> {
                    const ROW: $crate::Row = $crate::Row {
                        name: stringify!($row), cuda: $crate::table_cell!($cuda), hip: $crate::table_cell!($hip), parameters: &[],
                    };
                    let symbol = ROW.symbol(self.vendor);
                    let address = self.$row.get(&self.source, symbol, ROW.name)?;
                    // SAFETY: the row declares the C signature of both symbols; a test checks it against the vendors' headers.
                    let call: unsafe extern "C" fn($($ty),*) -> i32 = unsafe { std::mem::transmute(address) };
                    // SAFETY: the caller guarantees valid arguments.
                    match unsafe { call($($arg),*) } {
                        0 => Ok(()),
                        code => Err($crate::Failure::Code { call: symbol.unwrap_or(ROW.name), code }),
                    }
                }
            )*
        }
    };
}

/// A device address.
pub type DevicePtr = u64;
/// A handle by which other processes open an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct IpcHandle(pub [u8; 64]);
/// An opaque driver handle.
pub type Handle = *mut c_void;
/// `CUlaunchConfig`.
#[derive(Debug)]
#[repr(C)]
pub struct LaunchConfig {
    /// Blocks in each direction.
    pub grid: [c_uint; 3],
    /// Threads of a block in each direction.
    pub block: [c_uint; 3],
    /// Bytes of dynamic shared memory.
    pub shared: c_uint,
    /// The stream.
    pub stream: Handle,
    /// Attributes.
    pub attributes: *const LaunchAttribute,
    /// Number of attributes.
    pub count: c_uint,
}
/// `CUlaunchAttribute`.
#[derive(Debug)]
#[repr(C)]
pub struct LaunchAttribute {
    /// Attribute id.
    pub id: u64,
    /// Value; a union.
    pub value: [u64; 8],
}
/// `CUDA_MEMCPY2D` and `hip_Memcpy2D`: offsets, pitches, width and height in bytes and rows.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Copy2d {
    /// The source.
    pub source: Copy2dSide,
    /// The destination.
    pub destination: Copy2dSide,
    /// Bytes of a row to copy.
    pub width: usize,
    /// Rows.
    pub height: usize,
}
/// One side of a [`Copy2d`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Copy2dSide {
    /// First byte of each row.
    pub x: usize,
    /// First row.
    pub y: usize,
    /// The vendor's memory type.
    pub memory_type: c_int,
    /// Host address, for that memory type.
    pub host: *mut c_void,
    /// Device address, for that memory type.
    pub device: DevicePtr,
    /// Array, for that memory type.
    pub array: Handle,
    /// Bytes from one row to the next.
    pub pitch: usize,
}
/// `CUmemLocation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct MemLocation {
    /// 1 for a device.
    pub kind: c_int,
    /// The device's ordinal.
    pub id: c_int,
}
/// `hipPitchedPtr`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct PitchedPtr {
    /// The first byte.
    pub ptr: DevicePtr,
    /// Bytes from one row to the next.
    pub pitch: usize,
    /// Bytes of a row.
    pub width: usize,
    /// Rows of a plane.
    pub height: usize,
}
/// `hipExtent`: bytes, rows, planes.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Extent {
    /// Bytes of a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Planes.
    pub depth: usize,
}
/// A function the driver runs on the host.
pub type HostFunction = unsafe extern "C" fn(*mut c_void);
/// The older form, for HIP before 5.3.
pub type StreamCallback = unsafe extern "C" fn(Handle, i32, *mut c_void);

two_vendor_table! {
    /// The driver calls, resolved lazily.
    pub struct Table;

    // Initialization and devices
    /// Initializes the driver.
    init(flags: c_uint) = "cuInit" | "hipInit";
    /// CUDA: 1000·major + 10·minor. HIP: 10⁷·major + 10⁵·minor + patch.
    driver_version(out: *mut c_int) = "cuDriverGetVersion" | "hipDriverGetVersion";
    /// Number of devices.
    device_count(out: *mut c_int) = "cuDeviceGetCount" | "hipGetDeviceCount";
    /// The handle of an ordinal.
    device_get(out: *mut c_int, ordinal: c_int) = "cuDeviceGet" | "hipDeviceGet";
    /// Model name.
    device_name(out: *mut c_char, len: c_int, device: c_int) = "cuDeviceGetName" | "hipDeviceGetName";
    /// Bytes of memory.
    device_total_mem(out: *mut usize, device: c_int) = "cuDeviceTotalMem_v2" | "hipDeviceTotalMem";
    /// An attribute of a device; attribute numbers differ by vendor (see [`crate::vendor`]).
    device_attribute(out: *mut c_int, attribute: c_int, device: c_int) = "cuDeviceGetAttribute" | "hipDeviceGetAttribute";
    /// `0000:41:00.0`.
    device_pci_bus_id(out: *mut c_char, len: c_int, device: c_int) = "cuDeviceGetPCIBusId" | "hipDeviceGetPCIBusId";
    /// CUDA: 16 raw bytes. HIP (5.1+): 16 hexadecimal digits.
    device_uuid(out: *mut [u8; 16], device: c_int) = "cuDeviceGetUuid_v2" | "hipDeviceGetUuid";
    /// Waits for all work of the current device.
    device_synchronize() = "cuCtxSynchronize" | "hipDeviceSynchronize";
    /// The least and the greatest stream priority.
    stream_priority_range(least: *mut c_int, greatest: *mut c_int) = "cuCtxGetStreamPriorityRange" | "hipDeviceGetStreamPriorityRange";

    // The current device of this thread: the vendors differ, see the adapters
    /// Takes the device's primary context.
    primary_context_retain(out: *mut Handle, device: c_int) = "cuDevicePrimaryCtxRetain" | -;
    /// The thread's context.
    context_get_current(out: *mut Handle) = "cuCtxGetCurrent" | -;
    /// Sets the thread's context.
    context_set_current(context: Handle) = "cuCtxSetCurrent" | -;
    /// The thread's device.
    get_device(out: *mut c_int) = - | "hipGetDevice";
    /// Sets the thread's device.
    set_device(ordinal: c_int) = - | "hipSetDevice";
    /// Properties in the layout of ROCm 6 and later.
    properties_r0600(out: *mut c_void, device: c_int) = - | "hipGetDevicePropertiesR0600";
    /// Properties in the layout of ROCm 5.
    properties_r0000(out: *mut c_void, device: c_int) = - | "hipGetDeviceProperties";

    // Memory
    /// Allocates device memory.
    mem_alloc(out: *mut DevicePtr, bytes: usize) = "cuMemAlloc_v2" | "hipMalloc";
    /// Frees device memory.
    mem_free(ptr: DevicePtr) = "cuMemFree_v2" | "hipFree";
    /// Free and total bytes of the current device.
    mem_info(free: *mut usize, total: *mut usize) = "cuMemGetInfo_v2" | "hipMemGetInfo";
    /// Allocates page-locked host memory.
    host_alloc(out: *mut *mut c_void, bytes: usize, flags: c_uint) = "cuMemHostAlloc" | "hipHostMalloc";
    /// Frees page-locked host memory.
    host_free(ptr: *mut c_void) = "cuMemFreeHost" | "hipHostFree";
    /// Page-locks memory of the application.
    host_register(ptr: *mut c_void, bytes: usize, flags: c_uint) = "cuMemHostRegister_v2" | "hipHostRegister";
    /// Unlocks memory of the application.
    host_unregister(ptr: *mut c_void) = "cuMemHostUnregister" | "hipHostUnregister";
    /// The device's address of mapped host memory.
    host_device_pointer(out: *mut DevicePtr, host: *mut c_void, flags: c_uint) = "cuMemHostGetDevicePointer_v2" | "hipHostGetDevicePointer";
    /// Allocates unified memory.
    managed_alloc(out: *mut DevicePtr, bytes: usize, flags: c_uint) = "cuMemAllocManaged" | "hipMallocManaged";
    /// Moves unified memory to a device, or to the host (-1). CUDA's plain symbol keeps HIP's shape; `_v2` does not.
    mem_prefetch_async(ptr: DevicePtr, bytes: usize, device: c_int, stream: Handle) = "cuMemPrefetchAsync" | "hipMemPrefetchAsync";
    /// An attribute of a pointer.
    pointer_attribute(out: *mut c_void, attribute: c_int, ptr: DevicePtr) = "cuPointerGetAttribute" | "hipPointerGetAttribute";

    /// Advises the driver how unified memory will be used; 1 to 6 mean the same on both. CUDA's plain symbol keeps HIP's shape.
    mem_advise(ptr: DevicePtr, bytes: usize, advice: c_int, device: c_int) = "cuMemAdvise" | "hipMemAdvise";
    /// Moves unified memory to a location (CUDA 12.2+, HIP 7.1+).
    mem_prefetch_to(ptr: DevicePtr, bytes: usize, location: MemLocation, flags: c_uint, stream: Handle) = "cuMemPrefetchAsync_v2" | "hipMemPrefetchAsync_v2";
    /// Advises about unified memory at a location (CUDA 12.2+, HIP 7.1+).
    mem_advise_at(ptr: DevicePtr, bytes: usize, advice: c_int, location: MemLocation) = "cuMemAdvise_v2" | "hipMemAdvise_v2";
    /// Reads an attribute of a range of unified memory.
    mem_range_attribute(out: *mut c_void, out_bytes: usize, attribute: c_int, ptr: DevicePtr, bytes: usize) = "cuMemRangeGetAttribute" | "hipMemRangeGetAttribute";
    /// Allocates rows at a pitch that suits the device; `element` is 4, 8 or 16 bytes.
    mem_alloc_pitch(out: *mut DevicePtr, pitch: *mut usize, width: usize, height: usize, element: c_uint) = "cuMemAllocPitch_v2" | "hipMemAllocPitch";

    // Stream-ordered allocation (HIP 5.1+; HIP 5.2 for pools)
    /// Allocates in stream order.
    mem_alloc_async(out: *mut DevicePtr, bytes: usize, stream: Handle) = "cuMemAllocAsync" | "hipMallocAsync";
    /// Frees in stream order.
    mem_free_async(ptr: DevicePtr, stream: Handle) = "cuMemFreeAsync" | "hipFreeAsync";
    /// Allocates from a pool in stream order.
    mem_alloc_from_pool_async(out: *mut DevicePtr, bytes: usize, pool: Handle, stream: Handle) = "cuMemAllocFromPoolAsync" | "hipMallocFromPoolAsync";
    /// Returns the pool that a device starts with.
    default_mem_pool(out: *mut Handle, device: c_int) = "cuDeviceGetDefaultMemPool" | "hipDeviceGetDefaultMemPool";
    /// Returns a device's current pool.
    current_mem_pool(out: *mut Handle, device: c_int) = "cuDeviceGetMemPool" | "hipDeviceGetMemPool";
    /// Sets a device's current pool.
    set_mem_pool(device: c_int, pool: Handle) = "cuDeviceSetMemPool" | "hipDeviceSetMemPool";
    /// Creates a pool; the properties have 88 bytes on both.
    mem_pool_create(out: *mut Handle, properties: *const c_void) = "cuMemPoolCreate" | "hipMemPoolCreate";
    /// Destroys a pool.
    mem_pool_destroy(pool: Handle) = "cuMemPoolDestroy" | "hipMemPoolDestroy";
    /// Sets an attribute of a pool; 1 to 8 mean the same on both.
    mem_pool_set_attribute(pool: Handle, attribute: c_int, value: *mut c_void) = "cuMemPoolSetAttribute" | "hipMemPoolSetAttribute";
    /// Reads an attribute of a pool.
    mem_pool_attribute(pool: Handle, attribute: c_int, out: *mut c_void) = "cuMemPoolGetAttribute" | "hipMemPoolGetAttribute";
    /// Returns unused memory of a pool to the system, down to `keep` bytes.
    mem_pool_trim(pool: Handle, keep: usize) = "cuMemPoolTrimTo" | "hipMemPoolTrimTo";
    /// Sets which devices may access a pool's memory.
    mem_pool_set_access(pool: Handle, access: *const c_void, count: usize) = "cuMemPoolSetAccess" | "hipMemPoolSetAccess";

    // Memory of other processes
    /// Returns a handle for other processes.
    ipc_get_handle(out: *mut IpcHandle, ptr: DevicePtr) = "cuIpcGetMemHandle" | "hipIpcGetMemHandle";
    /// Maps an allocation of another process. The handle is passed by value.
    ipc_open_handle(out: *mut DevicePtr, handle: IpcHandle, flags: c_uint) = "cuIpcOpenMemHandle_v2" | "hipIpcOpenMemHandle";
    /// Unmaps an allocation of another process.
    ipc_close_handle(ptr: DevicePtr) = "cuIpcCloseMemHandle" | "hipIpcCloseMemHandle";

    // Copies: only the stream-ordered forms; a blocking copy is one of these and a synchronization
    /// Host to device.
    copy_h2d_async(dst: DevicePtr, src: *const c_void, bytes: usize, stream: Handle) = "cuMemcpyHtoDAsync_v2" | "hipMemcpyHtoDAsync";
    /// Device to host.
    copy_d2h_async(dst: *mut c_void, src: DevicePtr, bytes: usize, stream: Handle) = "cuMemcpyDtoHAsync_v2" | "hipMemcpyDtoHAsync";
    /// Within a device.
    copy_d2d_async(dst: DevicePtr, src: DevicePtr, bytes: usize, stream: Handle) = "cuMemcpyDtoDAsync_v2" | "hipMemcpyDtoDAsync";
    /// Between devices identified by context.
    copy_peer_by_context(dst: DevicePtr, dst_context: Handle, src: DevicePtr, src_context: Handle, bytes: usize, stream: Handle) = "cuMemcpyPeerAsync" | -;
    /// Between devices identified by ordinal.
    copy_peer_by_ordinal(dst: DevicePtr, dst_device: c_int, src: DevicePtr, src_device: c_int, bytes: usize, stream: Handle) = - | "hipMemcpyPeerAsync";
    /// Fills bytes. The asynchronous fills have no `_v2`.
    fill_u8_async(ptr: DevicePtr, value: u8, count: usize, stream: Handle) = "cuMemsetD8Async" | "hipMemsetD8Async";
    /// Fills 16-bit words.
    fill_u16_async(ptr: DevicePtr, value: u16, count: usize, stream: Handle) = "cuMemsetD16Async" | "hipMemsetD16Async";
    /// Fills 32-bit words.
    fill_u32_async(ptr: DevicePtr, value: u32, count: usize, stream: Handle) = "cuMemsetD32Async" | "hipMemsetD32Async";

    /// Copies a 2D range. The struct is the same on both; its memory types are not (see [`crate::vendor`]).
    copy_2d_async(copy: *const Copy2d, stream: Handle) = "cuMemcpy2DAsync_v2" | "hipMemcpyParam2DAsync";
    /// Copies a 3D range. The vendors' structs differ: `CUDA_MEMCPY3D` has 64-bit extents, `HIP_MEMCPY3D` of ROCm 5 has 32-bit ones.
    copy_3d_async(copy: *const c_void, stream: Handle) = "cuMemcpy3DAsync_v2" | "hipDrvMemcpy3DAsync";
    /// Fills a 2D range with a byte.
    fill_2d_u8_async(ptr: DevicePtr, pitch: usize, value: u8, width: usize, height: usize, stream: Handle) = "cuMemsetD2D8Async" | -;
    /// Fills a 2D range with 16-bit words.
    fill_2d_u16_async(ptr: DevicePtr, pitch: usize, value: u16, width: usize, height: usize, stream: Handle) = "cuMemsetD2D16Async" | -;
    /// Fills a 2D range with 32-bit words.
    fill_2d_u32_async(ptr: DevicePtr, pitch: usize, value: u32, width: usize, height: usize, stream: Handle) = "cuMemsetD2D32Async" | -;
    /// Fills a 2D range with the low byte of `value`: HIP's form.
    fill_2d_bytes_async(ptr: DevicePtr, pitch: usize, value: c_int, width: usize, height: usize, stream: Handle) = - | "hipMemset2DAsync";
    /// Fills a 3D range with the low byte of `value`. CUDA has this in its runtime API only.
    fill_3d_bytes_async(ptr: PitchedPtr, value: c_int, extent: Extent, stream: Handle) = - | "hipMemset3DAsync";

    // Arrays and textures
    /// Creates a 1D or 2D array.
    array_create(out: *mut Handle, descriptor: *const c_void) = "cuArrayCreate_v2" | "hipArrayCreate";
    /// Creates a 3D, layered or cube array.
    array_3d_create(out: *mut Handle, descriptor: *const c_void) = "cuArray3DCreate_v2" | "hipArray3DCreate";
    /// Destroys an array.
    array_destroy(array: Handle) = "cuArrayDestroy" | "hipArrayDestroy";
    /// Copies from the host to a 1D array.
    copy_h2a(array: Handle, offset: usize, src: *const c_void, bytes: usize) = "cuMemcpyHtoA_v2" | "hipMemcpyHtoA";
    /// Copies from a 1D array to the host.
    copy_a2h(dst: *mut c_void, array: Handle, offset: usize, bytes: usize) = "cuMemcpyAtoH_v2" | "hipMemcpyAtoH";
    /// Creates a mipmapped array.
    mipmapped_array_create(out: *mut Handle, descriptor: *const c_void, levels: c_uint) = "cuMipmappedArrayCreate" | "hipMipmappedArrayCreate";
    /// Returns a level of a mipmapped array.
    mipmapped_array_level(out: *mut Handle, array: Handle, level: c_uint) = "cuMipmappedArrayGetLevel" | "hipMipmappedArrayGetLevel";
    /// Destroys a mipmapped array.
    mipmapped_array_destroy(array: Handle) = "cuMipmappedArrayDestroy" | "hipMipmappedArrayDestroy";
    /// Creates a texture object.
    texture_create(out: *mut u64, resource: *const c_void, texture: *const c_void, view: *const c_void) = "cuTexObjectCreate" | "hipTexObjectCreate";
    /// Destroys a texture object.
    texture_destroy(texture: u64) = "cuTexObjectDestroy" | "hipTexObjectDestroy";
    /// Creates a surface object.
    surface_create(out: *mut u64, resource: *const c_void) = "cuSurfObjectCreate" | "hipCreateSurfaceObject";
    /// Destroys a surface object.
    surface_destroy(surface: u64) = "cuSurfObjectDestroy" | "hipDestroySurfaceObject";

    // Peers
    /// Whether a device can address another's memory.
    can_access_peer(out: *mut c_int, device: c_int, peer: c_int) = "cuDeviceCanAccessPeer" | "hipDeviceCanAccessPeer";
    /// Enables access to a peer, identified by context.
    enable_peer_by_context(peer: Handle, flags: c_uint) = "cuCtxEnablePeerAccess" | -;
    /// Enables access to a peer, identified by ordinal.
    enable_peer_by_ordinal(peer: c_int, flags: c_uint) = - | "hipDeviceEnablePeerAccess";

    // Streams and events
    /// Creates a stream.
    stream_create(out: *mut Handle, flags: c_uint, priority: c_int) = "cuStreamCreateWithPriority" | "hipStreamCreateWithPriority";
    /// Destroys it; work in flight still completes.
    stream_destroy(stream: Handle) = "cuStreamDestroy_v2" | "hipStreamDestroy";
    /// Waits for it.
    stream_synchronize(stream: Handle) = "cuStreamSynchronize" | "hipStreamSynchronize";
    /// Whether its work is done (0) or not (600).
    stream_query(stream: Handle) = "cuStreamQuery" | "hipStreamQuery";
    /// Makes it wait for an event.
    stream_wait_event(stream: Handle, event: Handle, flags: c_uint) = "cuStreamWaitEvent" | "hipStreamWaitEvent";
    /// Runs a host function in stream order (HIP 5.3+).
    launch_host_function(stream: Handle, function: HostFunction, data: *mut c_void) = "cuLaunchHostFunc" | "hipLaunchHostFunc";
    /// The older form of the same.
    stream_add_callback(stream: Handle, callback: StreamCallback, data: *mut c_void, flags: c_uint) = "cuStreamAddCallback" | "hipStreamAddCallback";
    /// Creates an event.
    event_create(out: *mut Handle, flags: c_uint) = "cuEventCreate" | "hipEventCreateWithFlags";
    /// Records it.
    event_record(event: Handle, stream: Handle) = "cuEventRecord" | "hipEventRecord";
    /// Waits for it on the host.
    event_synchronize(event: Handle) = "cuEventSynchronize" | "hipEventSynchronize";
    /// Whether it happened (0) or not (600).
    event_query(event: Handle) = "cuEventQuery" | "hipEventQuery";
    /// Milliseconds between two events.
    event_elapsed(out: *mut f32, start: Handle, end: Handle) = "cuEventElapsedTime" | "hipEventElapsedTime";
    /// Destroys it.
    event_destroy(event: Handle) = "cuEventDestroy_v2" | "hipEventDestroy";

    // Modules, kernels, launches
    /// Loads a code object from memory.
    module_load_data(out: *mut Handle, image: *const c_void) = "cuModuleLoadData" | "hipModuleLoadData";
    /// Unloads it.
    module_unload(module: Handle) = "cuModuleUnload" | "hipModuleUnload";
    /// A kernel of it.
    module_function(out: *mut Handle, module: Handle, name: *const c_char) = "cuModuleGetFunction" | "hipModuleGetFunction";
    /// A global variable of it.
    module_global(out: *mut DevicePtr, bytes: *mut usize, module: Handle, name: *const c_char) = "cuModuleGetGlobal_v2" | "hipModuleGetGlobal";
    /// An attribute of a kernel; 0 to 9 mean the same on both.
    function_attribute(out: *mut c_int, attribute: c_int, function: Handle) = "cuFuncGetAttribute" | "hipFuncGetAttribute";
    /// Sets an attribute of a kernel, such as its dynamic shared memory. HIP needs no opt-in, and its call of that name takes another handle.
    function_set_attribute(function: Handle, attribute: c_int, value: c_int) = "cuFuncSetAttribute" | -;
    /// Offset and size of a parameter (driver 12.4+). AMD code objects carry this themselves.
    function_parameter(function: Handle, index: usize, offset: *mut usize, bytes: *mut usize) = "cuFuncGetParamInfo" | -;
    /// Launches a kernel.
    launch(function: Handle, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: Handle, params: *mut *mut c_void, extra: *mut *mut c_void) = "cuLaunchKernel" | "hipModuleLaunchKernel";
    /// Launches a kernel with attributes (driver 11.8+).
    launch_with(config: *const LaunchConfig, function: Handle, params: *mut *mut c_void, extra: *mut *mut c_void) = "cuLaunchKernelEx" | -;
    /// Describes the tiles of a tensor to the copy engine (driver 12.0+).
    tensor_map_tiled(map: *mut TensorMap, element: c_int, rank: c_uint, address: DevicePtr, sizes: *const u64, strides: *const u64, tile: *const c_uint, steps: *const c_uint, interleave: c_int, swizzle: c_int, promotion: c_int, fill: c_int) = "cuTensorMapEncodeTiled" | -;
    /// Describes the taps of a convolution's pixels to the copy engine (driver 12.0+).
    tensor_map_im2col(map: *mut TensorMap, element: c_int, rank: c_uint, address: DevicePtr, sizes: *const u64, strides: *const u64, lower: *const c_int, upper: *const c_int, channels: c_uint, pixels: c_uint, steps: *const c_uint, interleave: c_int, swizzle: c_int, promotion: c_int, fill: c_int) = "cuTensorMapEncodeIm2col" | -;
    /// Launches a cooperative kernel (HIP 5.5+).
    launch_cooperative(function: Handle, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: Handle, params: *mut *mut c_void) = "cuLaunchCooperativeKernel" | "hipModuleLaunchCooperativeKernel";
    /// Blocks of a kernel that are resident on one multiprocessor at a time.
    max_active_blocks(out: *mut c_int, function: Handle, block: c_int, shared: usize) = "cuOccupancyMaxActiveBlocksPerMultiprocessor" | "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor";
    /// The block size with the best occupancy; CUDA's form has a callback.
    best_block_with_callback(grid: *mut c_int, block: *mut c_int, function: Handle, callback: *const c_void, shared: usize, limit: c_int) = "cuOccupancyMaxPotentialBlockSize" | -;
    /// The block size with the best occupancy.
    best_block(grid: *mut c_int, block: *mut c_int, function: Handle, shared: usize, limit: c_int) = - | "hipModuleOccupancyMaxPotentialBlockSize";

    // Graphs
    /// Begins capture. CUDA's plain symbol has one argument only.
    capture_begin(stream: Handle, mode: c_int) = "cuStreamBeginCapture_v2" | "hipStreamBeginCapture";
    /// Ends it.
    capture_end(stream: Handle, out: *mut Handle) = "cuStreamEndCapture" | "hipStreamEndCapture";
    /// Instantiates a graph.
    graph_instantiate(out: *mut Handle, graph: Handle, flags: u64) = "cuGraphInstantiateWithFlags" | "hipGraphInstantiateWithFlags";
    /// Runs it.
    graph_launch(exec: Handle, stream: Handle) = "cuGraphLaunch" | "hipGraphLaunch";
    /// Replaces its parameters. CUDA's plain symbol keeps HIP's shape; `_v2` does not.
    graph_update(exec: Handle, graph: Handle, error_node: *mut Handle, result: *mut c_int) = "cuGraphExecUpdate" | "hipGraphExecUpdate";
    /// Destroys a graph.
    graph_destroy(graph: Handle) = "cuGraphDestroy" | "hipGraphDestroy";
    /// Destroys an executable graph.
    graph_exec_destroy(exec: Handle) = "cuGraphExecDestroy" | "hipGraphExecDestroy";

    // Explicit graph nodes. The vendors' parameter structs differ, except those of host nodes.
    /// Creates an empty graph.
    graph_create(out: *mut Handle, flags: c_uint) = "cuGraphCreate" | "hipGraphCreate";
    /// Copies a graph.
    graph_clone(out: *mut Handle, graph: Handle) = "cuGraphClone" | "hipGraphClone";
    /// Lists a graph's nodes; with a null list, counts them.
    graph_nodes(graph: Handle, nodes: *mut Handle, count: *mut usize) = "cuGraphGetNodes" | "hipGraphGetNodes";
    /// Adds edges. CUDA's plain symbol keeps HIP's shape.
    graph_add_dependencies(graph: Handle, from: *const Handle, to: *const Handle, count: usize) = "cuGraphAddDependencies" | "hipGraphAddDependencies";
    /// Removes a node and its edges.
    graph_destroy_node(node: Handle) = "cuGraphDestroyNode" | "hipGraphDestroyNode";
    /// Adds a kernel launch.
    graph_add_kernel_node(out: *mut Handle, graph: Handle, after: *const Handle, count: usize, params: *const c_void) = "cuGraphAddKernelNode_v2" | "hipGraphAddKernelNode";
    /// Adds a copy (HIP 6.0+).
    graph_add_copy_node(out: *mut Handle, graph: Handle, after: *const Handle, count: usize, copy: *const c_void, context: Handle) = "cuGraphAddMemcpyNode" | "hipDrvGraphAddMemcpyNode";
    /// Adds a memset (HIP 6.1+).
    graph_add_memset_node(out: *mut Handle, graph: Handle, after: *const Handle, count: usize, memset: *const c_void, context: Handle) = "cuGraphAddMemsetNode" | "hipDrvGraphAddMemsetNode";
    /// Adds a host function.
    graph_add_host_node(out: *mut Handle, graph: Handle, after: *const Handle, count: usize, params: *const c_void) = "cuGraphAddHostNode" | "hipGraphAddHostNode";
    /// Adds a graph as a node.
    graph_add_child_node(out: *mut Handle, graph: Handle, after: *const Handle, count: usize, child: Handle) = "cuGraphAddChildGraphNode" | "hipGraphAddChildGraphNode";
    /// Adds a node without work.
    graph_add_empty_node(out: *mut Handle, graph: Handle, after: *const Handle, count: usize) = "cuGraphAddEmptyNode" | "hipGraphAddEmptyNode";
    /// Adds the recording of an event.
    graph_add_event_record_node(out: *mut Handle, graph: Handle, after: *const Handle, count: usize, event: Handle) = "cuGraphAddEventRecordNode" | "hipGraphAddEventRecordNode";
    /// Adds a wait for an event.
    graph_add_event_wait_node(out: *mut Handle, graph: Handle, after: *const Handle, count: usize, event: Handle) = "cuGraphAddEventWaitNode" | "hipGraphAddEventWaitNode";
    /// Replaces the parameters of a kernel node in an executable graph.
    graph_exec_set_kernel_node(exec: Handle, node: Handle, params: *const c_void) = "cuGraphExecKernelNodeSetParams_v2" | "hipGraphExecKernelNodeSetParams";

    // Errors
    /// Returns the thread's last error and keeps it. The CUDA driver has none.
    peek_at_last_error() = - | "hipPeekAtLastError";
    /// Returns the thread's last error and clears it.
    get_last_error() = - | "hipGetLastError";
    /// A code's name (HIP 5.3+).
    error_name(code: c_int, out: *mut *const c_char) = "cuGetErrorName" | "hipDrvGetErrorName";
    /// A code's description (HIP 5.3+).
    error_text(code: c_int, out: *mut *const c_char) = "cuGetErrorString" | "hipDrvGetErrorString";
}
