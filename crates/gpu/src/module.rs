//! Modules of compiled code, the kernels in them, and launches that are checked before the driver sees them.

use std::ffi::{CString, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::code_object::{CodeKind, CodeObject, KernelInfo};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::launch::{Arg, Args, Launch, default_block_size};
use crate::memory::{MemoryRange, mark_used};
use crate::stream::Stream;
use crate::table::{Failure, Handle, LaunchAttribute, LaunchConfig, Vendor};
use crate::vendor::{self, code};

/// Compiled code on a device. Cheap to clone; unloaded when the last kernel of it is gone.
#[derive(Clone)]
pub struct Module(Arc<ModuleInner>);

struct ModuleInner {
    device: Device,
    raw: Handle,
    /// What the code object tells about itself; `None` for formats that only the driver reads.
    code: Option<CodeObject>,
}

// SAFETY: module handles may be used from any thread.
unsafe impl Send for ModuleInner {}
// SAFETY: as above.
unsafe impl Sync for ModuleInner {}

impl Module {
    /// Loads a code object: `.cubin` or PTX for NVIDIA, `.hsaco` for AMD.
    pub fn load(device: &Device, image: &[u8]) -> Result<Module> {
        let bad = |reason: String| Error::BadModule { device: device.name().to_owned(), reason };
        let code = match CodeObject::parse(image) {
            Ok(code) => Some(code),
            // Drivers are told no length: a damaged file would make them read beyond it.
            Err(error) if image.starts_with(b"\x7f") || std::str::from_utf8(image).is_err() => return Err(bad(error.to_string())),
            // HIP loads no text; a bundle of code objects is none we can measure.
            Err(error) if device.info().vendor == Vendor::Amd && !device.driver().is_in_process() => return Err(bad(error.to_string())),
            // Text that is not PTX as we know it: the driver may judge.
            Err(_) => None,
        };
        check_target(device, code.as_ref()).map_err(bad)?;
        // Text ends with a NUL.
        let mut terminated = Vec::with_capacity(image.len() + 1);
        terminated.extend_from_slice(image);
        terminated.push(0);
        let table = device.activate()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the output outlives the call; the image was checked to be of a format with a length of its own.
        match unsafe { table.module_load_data(&mut raw, terminated.as_ptr().cast()) } {
            Ok(()) => Ok(Module(Arc::new(ModuleInner { device: device.clone(), raw, code }))),
            Err(Failure::Code { code: code @ (code::INVALID_IMAGE | code::NO_BINARY_FOR_GPU | code::UNSUPPORTED_PTX | 218), .. }) => {
                let (name, text) = vendor::error_text(table, code);
                Err(bad(format!("{name} ({code}): {text}; the device is {}", device.info().arch)))
            }
            Err(failure) => Err(device.error(failure)),
        }
    }

    /// The device it is loaded on.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    pub(crate) fn is_same(&self, other: &Module) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// What the code object tells about itself.
    pub fn code(&self) -> Option<&CodeObject> {
        self.0.code.as_ref()
    }

    /// The names of its kernels, where the code object tells them.
    pub fn kernel_names(&self) -> Vec<String> {
        self.0.code.as_ref().map(|code| code.kernels.iter().map(|k| k.name.clone()).collect()).unwrap_or_default()
    }

    /// A kernel by its symbol, or by its C++ name where that is unique.
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

    /// Address and size in bytes of a `__device__` or `__constant__` variable.
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

/// Refuses code of the other vendor or of another architecture, with both names in the message.
fn check_target(device: &Device, code: Option<&CodeObject>) -> std::result::Result<(), String> {
    let Some(code) = code else { return Ok(()) };
    let amd_code = code.target.starts_with("gfx");
    let info = device.info();
    let base = code.target.split(':').next().unwrap_or_default();
    match info.vendor {
        Vendor::Nvidia if amd_code => Err(format!("it is for {}, the device is {}", code.target, info.arch)),
        Vendor::Amd if !amd_code => Err(format!("it is for {}, the device is {}", code.target, info.arch)),
        Vendor::Amd if base != info.base_arch() && !base.ends_with("generic") => {
            Err(format!("it is for {}, the device is {}", code.target, info.arch))
        }
        _ => Ok(()),
    }
}

impl Drop for ModuleInner {
    fn drop(&mut self) {
        // CUDA waits for the kernels that still run; HIP does not.
        if self.device.info().vendor == Vendor::Amd && self.device.synchronize().is_err() {
            return;
        }
        if let Ok(table) = self.device.activate() {
            // SAFETY: the handle is ours, and this is its last use.
            let _ = unsafe { table.module_unload(self.raw) };
        }
    }
}

/// A kernel.
pub struct Kernel {
    module: Module,
    raw: Handle,
    name: String,
    /// Bytes of each parameter, where the code object or the driver tells them; asked for at the first launch.
    parameters: OnceLock<Option<Vec<usize>>>,
    /// The same, as the code object states it.
    stated: Option<Vec<usize>>,
    max_threads: u32,
    static_shared: usize,
    /// Dynamic shared memory that needs no asking for.
    default_shared: u32,
    /// All the device has was asked for.
    shared_allowed: AtomicBool,
}

// SAFETY: function handles may be used from any thread.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

/// CUDA gives this much shared memory, static and dynamic together, without asking.
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
        let stated: Option<Vec<usize>> = info.map(|info| info.explicit_args().map(|arg| arg.size as usize).collect());
        Ok(Kernel {
            module: module.clone(),
            raw,
            name: name.to_owned(),
            parameters: OnceLock::new(),
            stated,
            max_threads: attribute(MAX_THREADS).filter(|n| *n > 0).unwrap_or(limit),
            static_shared: static_shared as usize,
            default_shared: match device.info().vendor {
                Vendor::Nvidia => CUDA_DEFAULT_SHARED.saturating_sub(static_shared),
                Vendor::Amd => u32::MAX,
            },
            shared_allowed: AtomicBool::new(false),
        })
    }

    /// Its symbol.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The device it runs on.
    pub fn device(&self) -> &Device {
        self.module.device()
    }

    /// The driver's handle, for other libraries of the vendor. It lives as long as the kernel.
    pub fn raw(&self) -> Handle {
        self.raw
    }

    /// Threads of a block that its registers allow.
    pub fn max_threads_per_block(&self) -> u32 {
        self.max_threads
    }

    /// Launches it on `stream`.
    ///
    /// Before the driver sees the launch these are checked: the devices of the stream and of every buffer, the grid
    /// and block against the device's limits, and the number and sizes of the arguments where they are known.
    ///
    /// # Safety
    /// The arguments must be of the types of the kernel's parameters, and the kernel must stay within the buffers it
    /// is given, and write only into those that were given by `&mut`. Launched early, each of its threads must wait for the work before it
    /// (`griddepcontrol.wait`) before it touches memory that work still queued writes.
    pub unsafe fn launch<'a>(&self, stream: &Stream, launch: Launch, args: impl Args<'a>) -> Result<()> {
        let args = args.into_array();
        let args = args.as_ref();
        let device = self.device();
        stream.check_same_device(device, "the kernel")?;
        self.check_shape(&launch)?;
        self.check_arguments(stream, args)?;
        self.allow(launch.shared)?;
        // SAFETY: as the caller vouches.
        let queue = || unsafe { self.queue(stream, launch, args) };
        if stream.measures() { stream.measure(&self.name, queue) } else { queue() }
    }

    /// A launch that was checked.
    ///
    /// # Safety
    /// As [`Kernel::launch`].
    unsafe fn queue(&self, stream: &Stream, launch: Launch, args: &[Arg<'_>]) -> Result<()> {
        let device = self.device();
        let table = device.activate()?;
        let _gate = stream.enter();
        // Most kernels have few parameters: no allocation for them.
        let mut few = [std::ptr::null_mut::<c_void>(); 24];
        let mut many = Vec::new();
        let params: &mut [*mut c_void] = if args.len() <= few.len() {
            &mut few[..args.len()]
        } else {
            many.resize(args.len(), std::ptr::null_mut());
            &mut many
        };
        for (slot, arg) in params.iter_mut().zip(args) {
            // The driver only reads through these pointers.
            *slot = arg.as_bytes().as_ptr().cast_mut().cast();
        }
        let ([gx, gy, gz], [bx, by, bz]) = (launch.grid, launch.block);
        // Graphs know such launches since CUDA 12.3.
        let version = device.driver().version();
        let captured = || stream.capture().is_some() && (version.major, version.minor) < (12, 3);
        let early = launch.early && device.info().starts_early() && !captured();
        // SAFETY: the function and the stream are live; the parameters fit as checked, and as the caller vouches.
        device.check(unsafe {
            if launch.cooperative {
                table.launch_cooperative(self.raw, gx, gy, gz, bx, by, bz, launch.shared, stream.raw(), params.as_mut_ptr())
            } else if early {
                // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
                let attribute = LaunchAttribute { id: 6, value: [1, 0, 0, 0, 0, 0, 0, 0] };
                let (grid, block, shared) = (launch.grid, launch.block, launch.shared);
                let config = LaunchConfig { grid, block, shared, stream: stream.raw(), attributes: &attribute, count: 1 };
                table.launch_with(&config, self.raw, params.as_mut_ptr(), std::ptr::null_mut())
            } else {
                table.launch(self.raw, gx, gy, gz, bx, by, bz, launch.shared, stream.raw(), params.as_mut_ptr(), std::ptr::null_mut())
            }
        })?;
        if let Some(capture) = stream.capture() {
            capture.keep_module(&self.module);
        }
        mark_used(args.iter().filter_map(|arg| arg.block), stream)
    }

    /// Blocks of `block` threads that run at once on one compute unit.
    pub fn active_blocks(&self, block: u32, shared: u32) -> Result<u32> {
        let table = self.device().activate()?;
        // The answer is as for a launch, which may ask for more than the default.
        self.allow(shared)?;
        let mut blocks = 0;
        let threads = c_int::try_from(block).unwrap_or(c_int::MAX);
        // SAFETY: the output outlives the call, and the function is live.
        self.device().check(unsafe { table.max_active_blocks(&mut blocks, self.raw, threads, shared as usize) })?;
        Ok(u32::try_from(blocks).unwrap_or(0))
    }

    /// The block size of best occupancy; [`default_block_size`] where the driver has no answer.
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

    fn invalid(&self, reason: String) -> Error {
        Error::InvalidLaunch { kernel: self.name.clone(), device: self.device().name().to_owned(), reason }
    }

    fn check_shape(&self, launch: &Launch) -> Result<()> {
        let info = self.device().info();
        let Launch { grid, block, shared, .. } = *launch;
        for axis in 0..3 {
            let name = ["x", "y", "z"][axis];
            if grid[axis] == 0 || block[axis] == 0 {
                return Err(self.invalid(format!("grid {grid:?} with block {block:?}: every extent must be at least 1")));
            }
            // A limit that the driver does not tell is 0.
            if info.max_grid[axis] > 0 && grid[axis] > info.max_grid[axis] {
                return Err(self.invalid(format!("grid {name} is {}, the device's limit is {}", grid[axis], info.max_grid[axis])));
            }
            if info.max_block[axis] > 0 && block[axis] > info.max_block[axis] {
                return Err(self.invalid(format!("block {name} is {}, the device's limit is {}", block[axis], info.max_block[axis])));
            }
            if info.vendor == Vendor::Amd && u64::from(grid[axis]) * u64::from(block[axis]) > u64::from(u32::MAX) {
                return Err(self.invalid(format!(
                    "grid × block in {name} is {} × {}: AMD launches fewer than 2³² threads in a direction",
                    grid[axis], block[axis]
                )));
            }
        }
        let threads: u64 = block.iter().map(|n| u64::from(*n)).product();
        if self.max_threads > 0 && threads > u64::from(self.max_threads) {
            return Err(self.invalid(format!("a block of {threads} threads; this kernel runs with at most {}", self.max_threads)));
        }
        let all_shared = self.static_shared + shared as usize;
        if info.shared_per_block_max > 0 && all_shared > info.shared_per_block_max {
            let limit = info.shared_per_block_max;
            return Err(
                self.invalid(format!("{all_shared} bytes of shared memory ({shared} of them dynamic), the device's limit is {limit}"))
            );
        }
        if launch.cooperative && !info.cooperative_launch {
            return Err(self.invalid("the device has no cooperative launches".to_owned()));
        }
        Ok(())
    }

    fn check_arguments(&self, stream: &Stream, args: &[Arg<'_>]) -> Result<()> {
        let mismatch = |reason| Error::ArgumentMismatch { kernel: self.name.clone(), reason };
        if let Some(sizes) = self.parameters.get_or_init(|| self.ask_parameters()) {
            if sizes.len() != args.len() {
                return Err(mismatch(format!("it has {} parameters, {} arguments were given", sizes.len(), args.len())));
            }
            for (index, (size, arg)) in sizes.iter().zip(args).enumerate() {
                let given = arg.as_bytes().len();
                if given != *size {
                    return Err(mismatch(format!("parameter {index} has {size} bytes, the argument has {given}")));
                }
            }
        }
        for arg in args {
            if let Some(block) = arg.block.filter(|block| !stream.device().reaches(block.device())) {
                stream.check_device(block, "an argument")?;
            }
        }
        Ok(())
    }

    /// What the code object states; on NVIDIA, where that is our reading of an undocumented section, the driver's word
    /// counts instead (12.4+). PTX states nothing: there the driver is asked until it says that there are no more.
    fn ask_parameters(&self) -> Option<Vec<usize>> {
        let kind = self.module.code().map(|code| code.kind);
        let stated = self.stated.clone().filter(|_| kind != Some(CodeKind::Ptx));
        if self.device().info().vendor == Vendor::Amd {
            return stated;
        }
        let table = self.device().activate().ok()?;
        let mut sizes = Vec::new();
        while stated.as_ref().is_none_or(|stated| sizes.len() < stated.len()) {
            let (mut offset, mut bytes) = (0, 0);
            // SAFETY: the outputs outlive the call, and the function is live.
            match unsafe { table.function_parameter(self.raw, sizes.len(), &mut offset, &mut bytes) } {
                Ok(()) => sizes.push(bytes),
                // Past the last one.
                Err(Failure::Code { code: code::INVALID_VALUE, .. }) => break,
                Err(_) => return stated,
            }
        }
        Some(sizes)
    }

    fn allow(&self, shared: u32) -> Result<()> {
        if shared > self.default_shared && !self.shared_allowed.load(Ordering::Acquire) { self.allow_shared() } else { Ok(()) }
    }

    /// Asks for all the shared memory there is, once: the driver's attribute is set, not raised, and every [`Kernel`] of one function
    /// shares it.
    #[cold]
    fn allow_shared(&self) -> Result<()> {
        let table = self.device().activate()?;
        let most = self.device().info().shared_per_block_max.saturating_sub(self.static_shared);
        let value = c_int::try_from(most).unwrap_or(c_int::MAX);
        // SAFETY: the function is live.
        self.device().check(unsafe { table.function_set_attribute(self.raw, vendor::CUDA_FUNCTION_MAX_DYNAMIC_SHARED, value) })?;
        self.shared_allowed.store(true, Ordering::Release);
        Ok(())
    }
}
