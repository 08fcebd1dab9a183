//! Modules of compiled code and the kernels in them.

use std::ffi::{CString, c_int};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::code_object::{CodeObject, KernelInfo};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::launch::default_block_size;
use crate::memory::MemoryRange;
use crate::table::{Failure, Handle, Vendor};
use crate::vendor::{self, code};

/// Compiled code on a device. Cheap to clone; unloaded when it and its kernels are dropped.
#[derive(Clone)]
pub struct Module(Arc<ModuleInner>);

struct ModuleInner {
    device: Device,
    raw: Handle,
    /// `None` for formats that only the driver reads.
    code: Option<CodeObject>,
}

// SAFETY: module handles may be used from any thread.
unsafe impl Send for ModuleInner {}
// SAFETY: as above.
unsafe impl Sync for ModuleInner {}

impl Module {
    /// Loads a code object: cubin or PTX on NVIDIA, hsaco on AMD.
    pub fn load(device: &Device, image: &[u8]) -> Result<Module> {
        let code = match CodeObject::parse(image) {
            Ok(code) => Some(code),
            // Drivers take no length: with a damaged file they would read past its end.
            Err(error) if image.starts_with(b"\x7f") || std::str::from_utf8(image).is_err() => {
                return Err(bad_module(device, error.to_string()));
            }
            // HIP loads no text, and the length of an offload bundle is unknown.
            Err(error) if device.info().vendor == Vendor::Amd && !device.driver().is_in_process() => {
                return Err(bad_module(device, error.to_string()));
            }
            // Text that is not PTX as we know it: the driver decides.
            Err(_) => None,
        };
        Module::load_image(device, image, code)
    }

    /// Loads an image that was parsed already, without parsing it again.
    ///
    /// # Safety
    /// `code` must be what [`CodeObject::parse`] returned for `image`: parsing checks that a driver, which takes no length, stays within it.
    pub unsafe fn load_parsed(device: &Device, image: &[u8], code: CodeObject) -> Result<Module> {
        Module::load_image(device, image, Some(code))
    }

    fn load_image(device: &Device, image: &[u8], code: Option<CodeObject>) -> Result<Module> {
        if let Some(code) = code.as_ref().filter(|code| !device.info().arch.can_load(code.arch)) {
            return Err(bad_module(
                device,
                format!("the code was compiled for {}, but the device is {}", code.target(), device.info().arch),
            ));
        }
        // PTX must end with a NUL.
        let mut terminated = Vec::with_capacity(image.len() + 1);
        terminated.extend_from_slice(image);
        terminated.push(0);
        let table = device.activate()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the output outlives the call; the image was checked to be of a format that states its own length.
        match unsafe { table.module_load_data(&mut raw, terminated.as_ptr().cast()) } {
            Ok(()) => Ok(Module(Arc::new(ModuleInner { device: device.clone(), raw, code }))),
            Err(Failure::Code { code: code @ (code::INVALID_IMAGE | code::NO_BINARY_FOR_GPU | code::UNSUPPORTED_PTX | 218), .. }) => {
                let (name, text) = vendor::error_text(table, code);
                Err(bad_module(device, format!("{name} ({code}): {text}; the device is {}", device.info().arch)))
            }
            Err(failure) => Err(device.error(failure)),
        }
    }

    /// Returns the device it is loaded on.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    pub(crate) fn is_same(&self, other: &Module) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the parsed code object; `None` for formats that only the driver reads.
    pub fn code(&self) -> Option<&CodeObject> {
        self.0.code.as_ref()
    }

    /// Returns the symbols of its kernels; empty where the code object was not parsed.
    pub fn kernel_names(&self) -> Vec<String> {
        self.0.code.as_ref().map(|code| code.kernels.iter().map(|k| k.name.clone()).collect()).unwrap_or_default()
    }

    /// Returns a kernel by its symbol, or by its C++ name where that is unique.
    pub fn kernel(&self, name: &str) -> Result<Kernel> {
        let device = &self.0.device;
        let not_found = || Error::NotInModule { what: "kernel", name: name.to_owned(), available: self.kernel_names() };
        let info = match &self.0.code {
            Some(code) => Some(code.find(name).map_err(|_| not_found())?),
            None => None,
        };
        let symbol = info.map_or(name, |info| &info.name);
        let c_name = CString::new(symbol).map_err(|_| not_found())?;
        let table = device.activate()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the output outlives the call, the module is live, the name NUL-terminated.
        match unsafe { table.module_function(&mut raw, self.0.raw, c_name.as_ptr()) } {
            Ok(()) => Kernel::new(self, raw, symbol, info),
            Err(Failure::Code { code: code::NOT_FOUND, .. }) => Err(not_found()),
            Err(failure) => Err(device.error(failure)),
        }
    }

    /// Returns the address and size of a `__device__` or `__constant__` variable.
    pub fn global(&self, name: &str) -> Result<MemoryRange> {
        let device = &self.0.device;
        let not_found = || Error::NotInModule { what: "global", name: name.to_owned(), available: Vec::new() };
        let c_name = CString::new(name).map_err(|_| not_found())?;
        let table = device.activate()?;
        let mut range = MemoryRange { ptr: 0, bytes: 0 };
        // SAFETY: the outputs outlive the call, the module is live, the name NUL-terminated.
        match unsafe { table.module_global(&mut range.ptr, &mut range.bytes, self.0.raw, c_name.as_ptr()) } {
            Ok(()) => Ok(range),
            Err(Failure::Code { code: code::NOT_FOUND, .. }) => Err(not_found()),
            Err(failure) => Err(device.error(failure)),
        }
    }
}

fn bad_module(device: &Device, reason: String) -> Error {
    Error::BadModule { device: device.name().to_owned(), reason }
}

impl Drop for ModuleInner {
    fn drop(&mut self) {
        // CUDA waits for running kernels before it unloads; HIP does not.
        if self.device.info().vendor == Vendor::Amd && self.device.synchronize().is_err() {
            return;
        }
        if let Ok(table) = self.device.activate() {
            // SAFETY: the handle is ours, and this is its last use.
            let _ = unsafe { table.module_unload(self.raw) };
        }
    }
}

/// A kernel of a [`Module`]. Launched with [`Kernel::launch`].
pub struct Kernel {
    pub(crate) module: Module,
    pub(crate) raw: Handle,
    pub(crate) name: String,
    /// Size in bytes of each parameter, where known; queried at the first launch.
    pub(crate) parameters: OnceLock<Option<Vec<usize>>>,
    /// The same, as the code object states it.
    pub(crate) stated_parameters: Option<Vec<usize>>,
    pub(crate) max_threads: u32,
    pub(crate) static_shared: usize,
    /// Dynamic shared memory that a launch may use without opting in.
    default_shared: u32,
    /// Whether the kernel was opted in to all of the device's shared memory.
    shared_opted_in: AtomicBool,
}

// SAFETY: function handles may be used from any thread.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

/// Static and dynamic shared memory that CUDA allows without an opt-in.
const CUDA_DEFAULT_SHARED: u32 = 48 * 1024;

impl Kernel {
    fn new(module: &Module, raw: Handle, name: &str, info: Option<&KernelInfo>) -> Result<Kernel> {
        const MAX_THREADS: c_int = 0;
        const STATIC_SHARED: c_int = 1;
        let table = module.0.device.activate()?;
        let attribute = |number| {
            let mut value = 0;
            // SAFETY: the output outlives the call, and the function is live.
            unsafe { table.function_attribute(&mut value, number, raw) }.ok().and_then(|()| u32::try_from(value).ok())
        };
        let device = module.device();
        let limit = device.info().max_threads_per_block;
        let static_shared = attribute(STATIC_SHARED).unwrap_or(0);
        let stated_parameters: Option<Vec<usize>> = info.map(|info| info.explicit_args().map(|arg| arg.size as usize).collect());
        Ok(Kernel {
            module: module.clone(),
            raw,
            name: name.to_owned(),
            parameters: OnceLock::new(),
            stated_parameters,
            max_threads: attribute(MAX_THREADS).filter(|n| *n > 0).unwrap_or(limit),
            static_shared: static_shared as usize,
            default_shared: match device.info().vendor {
                Vendor::Nvidia => CUDA_DEFAULT_SHARED.saturating_sub(static_shared),
                Vendor::Amd => u32::MAX,
            },
            shared_opted_in: AtomicBool::new(false),
        })
    }

    /// Returns its symbol.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the device it runs on.
    pub fn device(&self) -> &Device {
        self.module.device()
    }

    /// Returns the driver's handle, for the vendor's other libraries. It is valid as long as the kernel lives.
    pub fn raw(&self) -> Handle {
        self.raw
    }

    /// Returns the largest block its registers allow, in threads.
    pub fn max_threads_per_block(&self) -> u32 {
        self.max_threads
    }

    /// Returns its occupancy: blocks of `block` threads that are resident on one compute unit at a time.
    pub fn active_blocks(&self, block: u32, shared: u32) -> Result<u32> {
        let table = self.device().activate()?;
        // A launch with this much shared memory would opt in too, and the answer depends on it.
        self.allow_shared(shared)?;
        let mut blocks = 0;
        let threads = c_int::try_from(block).unwrap_or(c_int::MAX);
        // SAFETY: the output outlives the call, and the function is live.
        self.device().check(unsafe { table.max_active_blocks(&mut blocks, self.raw, threads, shared as usize) })?;
        Ok(u32::try_from(blocks).unwrap_or(0))
    }

    /// Returns the block size with the best occupancy; [`default_block_size`] where the driver cannot tell.
    pub fn optimal_block_size(&self, shared: u32, complexity: u32) -> u32 {
        let info = self.device().info();
        let answer = self.device().activate().ok().and_then(|table| {
            // SAFETY: the function is live.
            unsafe { vendor::best_block(table, self.raw, shared as usize) }.ok()
        });
        match answer.and_then(|(_, block)| u32::try_from(block).ok()) {
            Some(block) if block > 0 => block,
            _ => default_block_size(info.vendor, complexity).min(self.max_threads),
        }
    }

    /// Makes sure that a launch may use `shared` bytes of dynamic shared memory.
    pub(crate) fn allow_shared(&self, shared: u32) -> Result<()> {
        if shared > self.default_shared && !self.shared_opted_in.load(Ordering::Acquire) { self.opt_in_shared() } else { Ok(()) }
    }

    /// Opts in to all of the device's shared memory, once. Every [`Kernel`] of one function shares the driver's attribute, so a smaller
    /// value for one would lower it for the others.
    #[cold]
    fn opt_in_shared(&self) -> Result<()> {
        let table = self.device().activate()?;
        let most = self.device().info().shared_per_block_max.saturating_sub(self.static_shared);
        let value = c_int::try_from(most).unwrap_or(c_int::MAX);
        // SAFETY: the function is live.
        self.device().check(unsafe { table.function_set_attribute(self.raw, vendor::CUDA_FUNCTION_MAX_DYNAMIC_SHARED, value) })?;
        self.shared_opted_in.store(true, Ordering::Release);
        Ok(())
    }
}
