//! The list of HIP functions: symbols, C signatures, and implementations.
//!
//! The C functions, the lookup by name, and the exports of `libamdhip64.so` are all generated from it.

/// Passes the list to the macro `$then`: first the functions that return an error code, then the others.
#[macro_export]
macro_rules! hip_functions {
    ($then:ident) => {
        $then! {
            status {
                // Initialization and devices
                hipInit(flags: c_uint) = device::init;
                hipDriverGetVersion(out: Out<c_int>) = device::version;
                hipRuntimeGetVersion(out: Out<c_int>) = device::version;
                hipGetDeviceCount(out: Out<c_int>) = device::count;
                hipDeviceGet(out: Out<c_int>, ordinal: c_int) = device::get;
                hipGetDevice(out: Out<c_int>) = device::current;
                hipSetDevice(ordinal: c_int) = device::set_current;
                hipDeviceGetName(out: Out<c_char>, length: c_int, device: c_int) = device::name;
                hipDeviceTotalMem(out: Out<usize>, device: c_int) = device::total_memory;
                hipDeviceGetAttribute(out: Out<c_int>, attribute: c_int, device: c_int) = properties::attribute;
                hipDeviceGetPCIBusId(out: Out<c_char>, length: c_int, device: c_int) = device::pci_bus_id;
                hipDeviceGetUuid(out: Out<[u8; 16]>, device: c_int) = device::uuid;
                hipGetDevicePropertiesR0600(out: Out<c_void>, device: c_int) = properties::r0600;
                hipGetDevicePropertiesR0000(out: Out<c_void>, device: c_int) = properties::r0000;
                hipGetDeviceProperties(out: Out<c_void>, device: c_int) = properties::r0000;
                hipDeviceSynchronize() = device::synchronize;
                hipDeviceReset() = device::reset;
                hipSetDeviceFlags(flags: c_uint) = device::set_flags;
                hipDeviceGetStreamPriorityRange(least: Out<c_int>, greatest: Out<c_int>) = stream::priority_range;
                hipDeviceCanAccessPeer(out: Out<c_int>, device: c_int, peer: c_int) = device::can_access_peer;
                hipDeviceEnablePeerAccess(peer: c_int, flags: c_uint) = device::enable_peer;
                hipDeviceDisablePeerAccess(peer: c_int) = device::disable_peer;
                hipDeviceComputeCapability(major: Out<c_int>, minor: Out<c_int>, device: c_int) = context::capability;
                hipDeviceGetByPCIBusId(out: Out<c_int>, id: Text) = context::by_pci_bus_id;

                // Settings
                hipGetDeviceFlags(out: Out<c_uint>) = context::flags;
                hipDeviceSetLimit(limit: c_int, value: usize) = context::set_limit;
                hipDeviceGetLimit(out: Out<usize>, limit: c_int) = context::limit;
                hipDeviceSetCacheConfig(preference: c_int) = context::set_preference;
                hipDeviceGetCacheConfig(out: Out<c_int>) = context::preference;
                hipDeviceSetSharedMemConfig(preference: c_int) = context::set_preference;
                hipDeviceGetSharedMemConfig(out: Out<c_int>) = context::preference;
                hipFuncSetSharedMemConfig(host: *const c_void, preference: c_int) = context::set_function_preference;
                hipProfilerStart() = context::profiler;
                hipProfilerStop() = context::profiler;

                // Contexts
                hipCtxCreate(out: Out<Handle>, flags: c_uint, device: c_int) = context::create;
                hipCtxDestroy(context: Handle) = context::destroy;
                hipCtxPushCurrent(context: Handle) = context::push;
                hipCtxPopCurrent(out: Out<Handle>) = context::pop;
                hipCtxSetCurrent(context: Handle) = context::set_current;
                hipCtxGetCurrent(out: Out<Handle>) = context::current;
                hipCtxGetDevice(out: Out<c_int>) = device::current;
                hipCtxSynchronize() = device::synchronize;
                hipCtxEnablePeerAccess(context: Handle, flags: c_uint) = context::enable_peer;
                hipCtxDisablePeerAccess(context: Handle) = context::disable_peer;
                hipDevicePrimaryCtxRetain(out: Out<Handle>, device: c_int) = context::retain;
                hipDevicePrimaryCtxRelease(device: c_int) = context::release;
                hipDevicePrimaryCtxGetState(device: c_int, flags: Out<c_uint>, active: Out<c_int>) = context::state;

                // Memory
                hipMalloc(out: Out<DevicePtr>, bytes: usize) = memory::malloc;
                hipMallocAsync(out: Out<DevicePtr>, bytes: usize, stream: Handle) = memory::malloc_async;
                hipFree(address: DevicePtr) = memory::free;
                hipFreeAsync(address: DevicePtr, stream: Handle) = memory::free_async;
                hipMemGetInfo(free: Out<usize>, total: Out<usize>) = memory::info;
                hipMemGetAddressRange(base: Out<DevicePtr>, bytes: Out<usize>, address: DevicePtr) = memory::address_range;
                hipHostMalloc(out: Out<*mut c_void>, bytes: usize, flags: c_uint) = memory::host_malloc;
                hipHostAlloc(out: Out<*mut c_void>, bytes: usize, flags: c_uint) = memory::host_malloc;
                hipMallocHost(out: Out<*mut c_void>, bytes: usize) = memory::malloc_host;
                hipHostFree(address: *mut c_void) = memory::host_free;
                hipFreeHost(address: *mut c_void) = memory::host_free;
                hipHostRegister(address: *mut c_void, bytes: usize, flags: c_uint) = memory::host_register;
                hipHostUnregister(address: *mut c_void) = memory::host_unregister;
                hipHostGetDevicePointer(out: Out<DevicePtr>, host: *mut c_void, flags: c_uint) = memory::host_device_pointer;
                hipMallocManaged(out: Out<DevicePtr>, bytes: usize, flags: c_uint) = memory::managed;
                hipMemPrefetchAsync(address: DevicePtr, bytes: usize, device: c_int, stream: Handle) = memory::prefetch_async;
                hipMemAdvise(address: DevicePtr, bytes: usize, advice: c_int, device: c_int) = context::advise;
                hipStreamAttachMemAsync(stream: Handle, address: DevicePtr, bytes: usize, flags: c_uint) = context::attach;
                hipMallocPitch(out: Out<DevicePtr>, pitch: Out<usize>, width: usize, rows: usize) = pitched::malloc;
                hipMemAllocPitch(out: Out<DevicePtr>, pitch: Out<usize>, width: usize, rows: usize, element: c_uint) = pitched::mem_alloc;
                hipMalloc3D(out: Out<PitchedPtr>, extent: Extent) = pitched::malloc_3d;
                hipPointerGetAttribute(out: Out<c_void>, attribute: c_int, address: DevicePtr) = memory::pointer_attribute;
                hipPointerGetAttributes(out: Out<PointerAttributes>, address: *const c_void) = memory::pointer_attributes;

                // Copies and memsets
                hipMemcpy(to: *mut c_void, from: *const c_void, bytes: usize, kind: c_int) = copy::copy;
                hipMemcpyAsync(to: *mut c_void, from: *const c_void, bytes: usize, kind: c_int, stream: Handle) = copy::copy_async;
                hipMemcpyWithStream(to: *mut c_void, from: *const c_void, bytes: usize, kind: c_int, stream: Handle) = copy::copy_with_stream;
                hipMemcpyHtoD(to: DevicePtr, from: *const c_void, bytes: usize) = copy::to_device;
                hipMemcpyDtoH(to: *mut c_void, from: DevicePtr, bytes: usize) = copy::to_host;
                hipMemcpyDtoD(to: DevicePtr, from: DevicePtr, bytes: usize) = copy::device_to_device;
                hipMemcpyHtoDAsync(to: DevicePtr, from: *const c_void, bytes: usize, stream: Handle) = copy::to_device_async;
                hipMemcpyDtoHAsync(to: *mut c_void, from: DevicePtr, bytes: usize, stream: Handle) = copy::to_host_async;
                hipMemcpyDtoDAsync(to: DevicePtr, from: DevicePtr, bytes: usize, stream: Handle) = copy::device_to_device_async;
                hipMemcpyPeer(to: DevicePtr, to_device: c_int, from: DevicePtr, from_device: c_int, bytes: usize) = copy::peer;
                hipMemcpyPeerAsync(to: DevicePtr, to_device: c_int, from: DevicePtr, from_device: c_int, bytes: usize, stream: Handle) = copy::peer_async;
                hipMemcpy2D(to: *mut c_void, to_pitch: usize, from: *const c_void, from_pitch: usize, bytes: usize, rows: usize, kind: c_int) = copy::copy_2d;
                hipMemcpy2DAsync(to: *mut c_void, to_pitch: usize, from: *const c_void, from_pitch: usize, bytes: usize, rows: usize, kind: c_int, stream: Handle) = copy::copy_2d_async;
                hipMemcpy3D(parameters: *const Copy3D) = pitched::copy_3d;
                hipMemcpy3DAsync(parameters: *const Copy3D, stream: Handle) = pitched::copy_3d_async;
                hipMemset2D(at: *mut c_void, pitch: usize, value: c_int, width: usize, rows: usize) = pitched::set_2d;
                hipMemset2DAsync(at: *mut c_void, pitch: usize, value: c_int, width: usize, rows: usize, stream: Handle) = pitched::set_2d_async;
                hipMemset3D(at: PitchedPtr, value: c_int, extent: Extent) = pitched::set_3d;
                hipMemset3DAsync(at: PitchedPtr, value: c_int, extent: Extent, stream: Handle) = pitched::set_3d_async;
                hipMemset(at: *mut c_void, value: c_int, bytes: usize) = copy::set;
                hipMemsetAsync(at: *mut c_void, value: c_int, bytes: usize, stream: Handle) = copy::set_async;
                hipMemsetD8(at: DevicePtr, value: u8, count: usize) = copy::fill_u8;
                hipMemsetD16(at: DevicePtr, value: u16, count: usize) = copy::fill_u16;
                hipMemsetD32(at: DevicePtr, value: u32, count: usize) = copy::fill_u32;
                hipMemsetD8Async(at: DevicePtr, value: u8, count: usize, stream: Handle) = copy::fill_u8_async;
                hipMemsetD16Async(at: DevicePtr, value: u16, count: usize, stream: Handle) = copy::fill_u16_async;
                hipMemsetD32Async(at: DevicePtr, value: u32, count: usize, stream: Handle) = copy::fill_u32_async;

                // Streams and events
                hipStreamCreate(out: Out<Handle>) = stream::create;
                hipStreamCreateWithFlags(out: Out<Handle>, flags: c_uint) = stream::create_with_flags;
                hipStreamCreateWithPriority(out: Out<Handle>, flags: c_uint, priority: c_int) = stream::create_with_priority;
                hipStreamDestroy(stream: Handle) = stream::destroy;
                hipStreamSynchronize(stream: Handle) = stream::synchronize;
                hipStreamQuery(stream: Handle) = stream::query;
                hipStreamGetPriority(stream: Handle, out: Out<c_int>) = stream::priority;
                hipStreamGetFlags(stream: Handle, out: Out<c_uint>) = stream::flags;
                hipStreamGetDevice(stream: Handle, out: Out<c_int>) = stream::device_of;
                hipStreamWaitEvent(stream: Handle, event: Handle, flags: c_uint) = stream::wait_event;
                hipLaunchHostFunc(stream: Handle, function: HostFunction, data: *mut c_void) = stream::launch_host_function;
                hipStreamAddCallback(stream: Handle, callback: StreamCallback, data: *mut c_void, flags: c_uint) = stream::add_callback;
                hipEventCreate(out: Out<Handle>) = event::create;
                hipEventCreateWithFlags(out: Out<Handle>, flags: c_uint) = event::create_with_flags;
                hipEventRecord(event: Handle, stream: Handle) = event::record;
                hipEventSynchronize(event: Handle) = event::synchronize;
                hipEventQuery(event: Handle) = event::query;
                hipEventElapsedTime(out: Out<f32>, start: Handle, end: Handle) = event::elapsed;
                hipEventDestroy(event: Handle) = event::destroy;

                // Modules, kernels, launches
                hipModuleLoad(out: Out<Handle>, path: Text) = module::load;
                hipModuleLoadData(out: Out<Handle>, image: *const c_void) = module::load_data;
                hipModuleLoadDataEx(out: Out<Handle>, image: *const c_void, count: c_uint, options: *mut c_int, values: *mut *mut c_void) = module::load_data_ex;
                hipModuleUnload(module: Handle) = module::unload;
                hipModuleGetFunction(out: Out<Handle>, module: Handle, name: Text) = module::function;
                hipModuleGetGlobal(out: Out<DevicePtr>, bytes: Out<usize>, module: Handle, name: Text) = module::global;
                hipFuncGetAttribute(out: Out<c_int>, attribute: c_int, function: Handle) = module::function_attribute;
                hipModuleLaunchKernel(function: Handle, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: Handle, parameters: *mut *mut c_void, extra: *mut *mut c_void) = launch::launch;
                hipModuleLaunchCooperativeKernel(function: Handle, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: Handle, parameters: *mut *mut c_void) = launch::launch_cooperative;
                hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(out: Out<c_int>, function: Handle, block: c_int, shared: usize) = occupancy::max_active_blocks;
                hipModuleOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(out: Out<c_int>, function: Handle, block: c_int, shared: usize, flags: c_uint) = occupancy::max_active_blocks_with_flags;
                hipModuleOccupancyMaxPotentialBlockSize(grid: Out<c_int>, block: Out<c_int>, function: Handle, shared: usize, limit: c_int) = occupancy::best_block;
                hipModuleOccupancyMaxPotentialBlockSizeWithFlags(grid: Out<c_int>, block: Out<c_int>, function: Handle, shared: usize, limit: c_int, flags: c_uint) = occupancy::best_block_with_flags;

                // Kernels and variables of compiled programs, named by host addresses
                __hipPushCallConfiguration(grid: Dim3, block: Dim3, shared: usize, stream: Handle) = fat_binary::push_configuration;
                __hipPopCallConfiguration(grid: Out<Dim3>, block: Out<Dim3>, shared: Out<usize>, stream: Out<Handle>) = fat_binary::pop_configuration;
                hipLaunchKernel(host: *const c_void, grid: Dim3, block: Dim3, parameters: *mut *mut c_void, shared: usize, stream: Handle) = fat_binary::launch;
                hipLaunchCooperativeKernel(host: *const c_void, grid: Dim3, block: Dim3, parameters: *mut *mut c_void, shared: c_uint, stream: Handle) = fat_binary::launch_cooperative;
                hipGetSymbolAddress(out: Out<DevicePtr>, host: *const c_void) = fat_binary::symbol_address;
                hipGetSymbolSize(out: Out<usize>, host: *const c_void) = fat_binary::symbol_size;
                hipMemcpyToSymbol(host: *const c_void, from: *const c_void, bytes: usize, offset: usize, kind: c_int) = fat_binary::to_symbol;
                hipMemcpyFromSymbol(to: *mut c_void, host: *const c_void, bytes: usize, offset: usize, kind: c_int) = fat_binary::from_symbol;
                hipMemcpyToSymbolAsync(host: *const c_void, from: *const c_void, bytes: usize, offset: usize, kind: c_int, stream: Handle) = fat_binary::to_symbol_async;
                hipMemcpyFromSymbolAsync(to: *mut c_void, host: *const c_void, bytes: usize, offset: usize, kind: c_int, stream: Handle) = fat_binary::from_symbol_async;
                hipFuncGetAttributes(out: Out<FunctionAttributes>, host: *const c_void) = fat_binary::function_attributes;
                hipFuncSetAttribute(host: *const c_void, attribute: c_int, value: c_int) = fat_binary::set_attribute;
                hipFuncSetCacheConfig(host: *const c_void, preference: c_int) = fat_binary::set_cache;
                hipOccupancyMaxActiveBlocksPerMultiprocessor(out: Out<c_int>, host: *const c_void, block: c_int, shared: usize) = fat_binary::max_active_blocks;
                hipOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(out: Out<c_int>, host: *const c_void, block: c_int, shared: usize, flags: c_uint) = fat_binary::max_active_blocks_with_flags;
                hipOccupancyMaxPotentialBlockSize(grid: Out<c_int>, block: Out<c_int>, host: *const c_void, shared: usize, limit: c_int) = fat_binary::best_block;

                // Graphs
                hipStreamBeginCapture(stream: Handle, mode: c_int) = capture::begin;
                hipStreamEndCapture(stream: Handle, out: Out<Handle>) = capture::end;
                hipStreamIsCapturing(stream: Handle, out: Out<c_int>) = capture::is_capturing;
                hipStreamGetCaptureInfo(stream: Handle, status: Out<c_int>, id: Out<u64>) = capture::info;
                hipThreadExchangeStreamCaptureMode(mode: Out<c_int>) = capture::exchange_mode;
                hipGraphCreate(out: Out<Handle>, flags: c_uint) = graph::create;
                hipGraphInstantiate(out: Out<Handle>, graph: Handle, node: Out<Handle>, log: Out<c_char>, log_size: usize) = graph::instantiate;
                hipGraphInstantiateWithFlags(out: Out<Handle>, graph: Handle, flags: u64) = graph::instantiate_with_flags;
                hipGraphLaunch(exec: Handle, stream: Handle) = graph::launch;
                hipGraphUpload(exec: Handle, stream: Handle) = graph::upload;
                hipGraphExecUpdate(exec: Handle, graph: Handle, node: Out<Handle>, result: Out<c_int>) = graph::update;
                hipGraphDestroy(graph: Handle) = graph::destroy;
                hipGraphExecDestroy(exec: Handle) = graph::exec_destroy;

                // Errors
                hipDrvGetErrorName(code: c_int, out: Out<*const c_char>) = error::driver_error_name;
                hipDrvGetErrorString(code: c_int, out: Out<*const c_char>) = error::driver_error_string;
            }
            other {
                hipGetErrorName(code: c_int) -> *const c_char = error::error_name;
                hipGetErrorString(code: c_int) -> *const c_char = error::error_string;
                hipGetLastError() -> c_int = error::get_last_error;
                hipPeekAtLastError() -> c_int = error::peek_at_last_error;
                __hipRegisterFatBinary(wrapper: *const c_void) -> Handle = fat_binary::register;
                __hipUnregisterFatBinary(fat: Handle) -> () = fat_binary::unregister;
                __hipRegisterFunction(fat: Handle, host: *const c_void, device_function: *mut c_char, name: Text, limit: c_uint, thread: *mut c_void, block: *mut c_void, block_size: *mut c_void, grid_size: *mut c_void, wave: *mut c_int) -> () = fat_binary::function;
                __hipRegisterVar(fat: Handle, host: *mut c_void, host_name: *mut c_char, name: Text, external: c_int, bytes: usize, constant: c_int, global: c_int) -> () = fat_binary::variable;
                hipKernelNameRef(function: Handle) -> *const c_char = module::function_name;
            }
        }
    };
}

macro_rules! define {
    (
        status { $( $symbol:ident ( $($arg:ident : $ty:ty),* ) = $subject:ident :: $body:ident; )* }
        other { $( $other:ident ( $($other_arg:ident : $other_ty:ty),* ) -> $ret:ty = $other_subject:ident :: $other_body:ident; )* }
    ) => {
        /// The C functions, with HIP's names and signatures.
        ///
        /// # Safety
        /// Callers must follow HIP's documentation: pointers are null or valid for what the function does with them.
        #[allow(non_snake_case, clippy::missing_safety_doc, missing_docs, clippy::too_many_arguments)]
        pub mod functions {
            use std::ffi::{c_char, c_int, c_uint, c_void};

            use super::super::memory::PointerAttributes;
            use super::super::fat_binary::FunctionAttributes;
            use super::super::types::*;
            use super::super::{capture, context, copy, device, error, event, graph, launch, memory, module, occupancy, pitched, properties, fat_binary, stream};

            $(
                pub unsafe extern "C" fn $symbol($($arg: $ty),*) -> c_int {
                    // SAFETY: the caller follows HIP's documentation, which is what the function asks for, if it asks for anything.
                    #[allow(unused_unsafe)]
                    error::guard(|| unsafe { $subject::$body($($arg),*) })
                }
            )*
            $(
                pub unsafe extern "C" fn $other($($other_arg: $other_ty),*) -> $ret {
                    // SAFETY: as above.
                    #[allow(unused_unsafe)]
                    error::guard_default(|| unsafe { $other_subject::$other_body($($other_arg),*) })
                }
            )*
        }

        /// Returns the address of the function with this HIP name, as `dlsym` does.
        pub fn lookup(symbol: &str) -> Option<*const std::ffi::c_void> {
            /// A symbol that no HIP runtime has: it tells the virtual GPU from hardware.
            static VIRTUAL_GPU: u8 = 1;
            Some(match symbol {
                "warpwave_virtual_gpu" => (&raw const VIRTUAL_GPU).cast(),
                $( stringify!($symbol) => functions::$symbol as *const std::ffi::c_void, )*
                $( stringify!($other) => functions::$other as *const std::ffi::c_void, )*
                _ => return None,
            })
        }

        /// The names of all functions.
        pub const SYMBOLS: &[&str] = &[ $( stringify!($symbol), )* $( stringify!($other), )* ];
    };
}

hip_functions!(define);
