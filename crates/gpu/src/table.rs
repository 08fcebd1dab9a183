//! The one table of driver calls: each row is an operation with one Rust signature and the symbol of each vendor.
//!
//! HIP mirrors the CUDA driver API: nearly every row has two symbols of one C shape. Where a vendor has no such
//! symbol the cell is `-`; the few operations whose shapes differ are adapters in [`crate::vendor`].
//!
//! The full symbol stands here, suffix and all: `cuMemAlloc` without `_v2` resolves too, and truncates sizes.
//! A test compiles every row against the vendors' headers.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::fmt;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::library::Library;

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
    /// Functions of this process: the virtual GPU, or a test's fake driver.
    InProcess(fn(&str) -> Option<*const c_void>),
}

impl Source {
    /// The address of `symbol`.
    pub fn symbol(&self, symbol: &str) -> Option<*const c_void> {
        match self {
            Source::Library(library) => library.symbol(symbol),
            Source::InProcess(lookup) => lookup(symbol),
        }
    }
}

/// Why a row's call did not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The driver answered with a number other than 0.
    Code {
        /// The vendor symbol.
        call: &'static str,
        /// Its answer.
        code: i32,
    },
    /// The library does not export the symbol.
    MissingSymbol(&'static str),
    /// This vendor has no such call.
    NoSuchCall(&'static str),
}

/// A row's address: null before the first use, `MISSING` when the library does not export it.
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

/// A row as data, for tests and for `warpwave doctor`.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The operation.
    pub name: &'static str,
    /// CUDA's symbol.
    pub cuda: Option<&'static str>,
    /// HIP's symbol.
    pub hip: Option<&'static str>,
    /// Size in bytes of each parameter, in order.
    pub parameters: &'static [usize],
}

impl Row {
    /// The symbol in `vendor`'s column.
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

            /// A table whose symbols are looked up in `source` when first used.
            $vis fn new(vendor: $crate::Vendor, source: $crate::Source) -> Self {
                $table { vendor, source, $( $row: Default::default(), )* }
            }

            /// The column in use.
            $vis fn vendor(&self) -> $crate::Vendor {
                self.vendor
            }

            /// Where the symbols come from.
            $vis fn source(&self) -> &$crate::Source {
                &self.source
            }

            $(
                $(#[$doc])*
                ///
                /// # Safety
                /// The arguments must be what the vendor's call of this row asks for.
                #[inline]
                $vis unsafe fn $row(&self, $($arg: $ty),*) -> Result<(), $crate::Failure> {
                    const ROW: $crate::Row = $crate::Row {
                        name: stringify!($row), cuda: $crate::table_cell!($cuda), hip: $crate::table_cell!($hip), parameters: &[],
                    };
                    let symbol = ROW.symbol(self.vendor);
                    let address = self.$row.get(&self.source, symbol, ROW.name)?;
                    // SAFETY: the row declares the C shape of both symbols; a test checks it against the vendors' headers.
                    let call: unsafe extern "C" fn($($ty),*) -> i32 = unsafe { std::mem::transmute(address) };
                    // SAFETY: the caller vouches for the arguments.
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
/// What names an allocation to other processes.
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
    /// Where it is queued.
    pub stream: Handle,
    /// What else is asked for, and how many.
    pub attributes: *const LaunchAttribute,
    /// How many.
    pub count: c_uint,
}
/// `CUlaunchAttribute`.
#[derive(Debug)]
#[repr(C)]
pub struct LaunchAttribute {
    /// Which.
    pub id: u64,
    /// Its value; a union.
    pub value: [u64; 8],
}
/// A function the driver runs on the host.
pub type HostFunction = unsafe extern "C" fn(*mut c_void);
/// HIP's older form of the same.
pub type StreamCallback = unsafe extern "C" fn(Handle, i32, *mut c_void);

two_vendor_table! {
    /// The driver calls, resolved lazily.
    pub struct Table;

    // Start and devices
    /// Starts the driver.
    init(flags: c_uint) = "cuInit" | "hipInit";
    /// CUDA: 1000·major + 10·minor. HIP: 10⁷·major + 10⁵·minor + patch.
    driver_version(out: *mut c_int) = "cuDriverGetVersion" | "hipDriverGetVersion";
    /// Devices there are.
    device_count(out: *mut c_int) = "cuDeviceGetCount" | "hipGetDeviceCount";
    /// The handle of an ordinal.
    device_get(out: *mut c_int, ordinal: c_int) = "cuDeviceGet" | "hipDeviceGet";
    /// The marketing name.
    device_name(out: *mut c_char, len: c_int, device: c_int) = "cuDeviceGetName" | "hipDeviceGetName";
    /// Bytes of memory.
    device_total_mem(out: *mut usize, device: c_int) = "cuDeviceTotalMem_v2" | "hipDeviceTotalMem";
    /// A number; the attribute's own number differs by vendor (see [`crate::vendor`]).
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
    /// Frees it.
    host_free(ptr: *mut c_void) = "cuMemFreeHost" | "hipHostFree";
    /// Page-locks memory of the application.
    host_register(ptr: *mut c_void, bytes: usize, flags: c_uint) = "cuMemHostRegister_v2" | "hipHostRegister";
    /// Undoes it.
    host_unregister(ptr: *mut c_void) = "cuMemHostUnregister" | "hipHostUnregister";
    /// The device's address of mapped host memory.
    host_device_pointer(out: *mut DevicePtr, host: *mut c_void, flags: c_uint) = "cuMemHostGetDevicePointer_v2" | "hipHostGetDevicePointer";
    /// Allocates unified memory.
    managed_alloc(out: *mut DevicePtr, bytes: usize, flags: c_uint) = "cuMemAllocManaged" | "hipMallocManaged";
    /// Moves unified memory to a device, or to the host (-1). CUDA's plain symbol keeps HIP's shape; `_v2` does not.
    mem_prefetch_async(ptr: DevicePtr, bytes: usize, device: c_int, stream: Handle) = "cuMemPrefetchAsync" | "hipMemPrefetchAsync";
    /// A fact about a pointer.
    pointer_attribute(out: *mut c_void, attribute: c_int, ptr: DevicePtr) = "cuPointerGetAttribute" | "hipPointerGetAttribute";

    // Memory of other processes
    /// Names an allocation.
    ipc_get_handle(out: *mut IpcHandle, ptr: DevicePtr) = "cuIpcGetMemHandle" | "hipIpcGetMemHandle";
    /// Maps an allocation of another process. The handle goes by value.
    ipc_open_handle(out: *mut DevicePtr, handle: IpcHandle, flags: c_uint) = "cuIpcOpenMemHandle_v2" | "hipIpcOpenMemHandle";
    /// Undoes it.
    ipc_close_handle(ptr: DevicePtr) = "cuIpcCloseMemHandle" | "hipIpcCloseMemHandle";

    // Copies: only the stream-ordered forms; a blocking copy is one of these and a wait
    /// Host to device.
    copy_h2d_async(dst: DevicePtr, src: *const c_void, bytes: usize, stream: Handle) = "cuMemcpyHtoDAsync_v2" | "hipMemcpyHtoDAsync";
    /// Device to host.
    copy_d2h_async(dst: *mut c_void, src: DevicePtr, bytes: usize, stream: Handle) = "cuMemcpyDtoHAsync_v2" | "hipMemcpyDtoHAsync";
    /// Within a device.
    copy_d2d_async(dst: DevicePtr, src: DevicePtr, bytes: usize, stream: Handle) = "cuMemcpyDtoDAsync_v2" | "hipMemcpyDtoDAsync";
    /// Between devices, named by context.
    copy_peer_by_context(dst: DevicePtr, dst_context: Handle, src: DevicePtr, src_context: Handle, bytes: usize, stream: Handle) = "cuMemcpyPeerAsync" | -;
    /// Between devices, named by ordinal.
    copy_peer_by_ordinal(dst: DevicePtr, dst_device: c_int, src: DevicePtr, src_device: c_int, bytes: usize, stream: Handle) = - | "hipMemcpyPeerAsync";
    /// Fills bytes. The asynchronous fills have no `_v2`.
    fill_u8_async(ptr: DevicePtr, value: u8, count: usize, stream: Handle) = "cuMemsetD8Async" | "hipMemsetD8Async";
    /// Fills 16-bit words.
    fill_u16_async(ptr: DevicePtr, value: u16, count: usize, stream: Handle) = "cuMemsetD16Async" | "hipMemsetD16Async";
    /// Fills 32-bit words.
    fill_u32_async(ptr: DevicePtr, value: u32, count: usize, stream: Handle) = "cuMemsetD32Async" | "hipMemsetD32Async";

    // Peers
    /// Whether a device can address another's memory.
    can_access_peer(out: *mut c_int, device: c_int, peer: c_int) = "cuDeviceCanAccessPeer" | "hipDeviceCanAccessPeer";
    /// Opens that way, the peer named by context.
    enable_peer_by_context(peer: Handle, flags: c_uint) = "cuCtxEnablePeerAccess" | -;
    /// Opens that way, the peer named by ordinal.
    enable_peer_by_ordinal(peer: c_int, flags: c_uint) = - | "hipDeviceEnablePeerAccess";

    // Streams and events
    /// Makes a stream.
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
    /// Makes an event.
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
    /// A number about a kernel; the numbers 0 to 9 are the same on both.
    function_attribute(out: *mut c_int, attribute: c_int, function: Handle) = "cuFuncGetAttribute" | "hipFuncGetAttribute";
    /// Raises a kernel's dynamic shared memory. HIP needs no such step, and its call of that name wants another handle.
    function_set_attribute(function: Handle, attribute: c_int, value: c_int) = "cuFuncSetAttribute" | -;
    /// Offset and size of a parameter (driver 12.4+). AMD code objects carry this themselves.
    function_parameter(function: Handle, index: usize, offset: *mut usize, bytes: *mut usize) = "cuFuncGetParamInfo" | -;
    /// Launches a kernel.
    launch(function: Handle, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: Handle, params: *mut *mut c_void, extra: *mut *mut c_void) = "cuLaunchKernel" | "hipModuleLaunchKernel";
    /// Launches a kernel with attributes (driver 11.8+).
    launch_with(config: *const LaunchConfig, function: Handle, params: *mut *mut c_void, extra: *mut *mut c_void) = "cuLaunchKernelEx" | -;
    /// Launches a kernel whose blocks may wait for each other (HIP 5.5+).
    launch_cooperative(function: Handle, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: Handle, params: *mut *mut c_void) = "cuLaunchCooperativeKernel" | "hipModuleLaunchCooperativeKernel";
    /// Blocks of a kernel that fit on one multiprocessor at a time.
    max_active_blocks(out: *mut c_int, function: Handle, block: c_int, shared: usize) = "cuOccupancyMaxActiveBlocksPerMultiprocessor" | "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor";
    /// The block size of best occupancy, with CUDA's extra callback.
    best_block_with_callback(grid: *mut c_int, block: *mut c_int, function: Handle, callback: *const c_void, shared: usize, limit: c_int) = "cuOccupancyMaxPotentialBlockSize" | -;
    /// The block size of best occupancy.
    best_block(grid: *mut c_int, block: *mut c_int, function: Handle, shared: usize, limit: c_int) = - | "hipModuleOccupancyMaxPotentialBlockSize";

    // Graphs
    /// Begins capture. CUDA's plain symbol has one argument only.
    capture_begin(stream: Handle, mode: c_int) = "cuStreamBeginCapture_v2" | "hipStreamBeginCapture";
    /// Ends it.
    capture_end(stream: Handle, out: *mut Handle) = "cuStreamEndCapture" | "hipStreamEndCapture";
    /// Makes a graph executable.
    graph_instantiate(out: *mut Handle, graph: Handle, flags: u64) = "cuGraphInstantiateWithFlags" | "hipGraphInstantiateWithFlags";
    /// Runs it.
    graph_launch(exec: Handle, stream: Handle) = "cuGraphLaunch" | "hipGraphLaunch";
    /// Replaces its parameters. CUDA's plain symbol keeps HIP's shape; `_v2` does not.
    graph_update(exec: Handle, graph: Handle, error_node: *mut Handle, result: *mut c_int) = "cuGraphExecUpdate" | "hipGraphExecUpdate";
    /// Destroys a graph.
    graph_destroy(graph: Handle) = "cuGraphDestroy" | "hipGraphDestroy";
    /// Destroys an executable graph.
    graph_exec_destroy(exec: Handle) = "cuGraphExecDestroy" | "hipGraphExecDestroy";

    // Errors
    /// The thread's last error, which stays. CUDA's driver remembers none.
    peek_at_last_error() = - | "hipPeekAtLastError";
    /// The thread's last error, which is forgotten.
    get_last_error() = - | "hipGetLastError";
    /// A code's name (HIP 5.3+).
    error_name(code: c_int, out: *mut *const c_char) = "cuGetErrorName" | "hipDrvGetErrorName";
    /// A code's sentence (HIP 5.3+).
    error_text(code: c_int, out: *mut *const c_char) = "cuGetErrorString" | "hipDrvGetErrorString";
}
