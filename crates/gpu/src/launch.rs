//! Kernel launches: their shape, the checks before the driver sees them, and the launch itself.

use std::ffi::c_void;

use crate::args::{Arg, Args};
use crate::code_object::CodeKind;
use crate::error::{Error, Result};
use crate::memory::mark_used;
use crate::module::Kernel;
use crate::stream::Stream;
use crate::table::{Failure, LaunchAttribute, LaunchConfig, Vendor};
use crate::vendor::code;

/// The shape of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    /// Blocks in each direction.
    pub grid: [u32; 3],
    /// Threads of a block in each direction.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// Cooperative launch: all blocks are resident at the same time and may synchronize with each other.
    pub cooperative: bool,
    /// Programmatic dependent launch (PDL): the kernel may start while the previous one in the stream still runs, and calls
    /// `griddepcontrol.wait` before it touches memory that earlier work writes. Ignored before sm_90 and on AMD.
    pub pdl: bool,
}

impl Launch {
    /// Creates a launch of `grid` blocks of `block` threads.
    pub fn new(grid: [u32; 3], block: [u32; 3]) -> Launch {
        Launch { grid, block, shared: 0, cooperative: false, pdl: false }
    }

    /// Creates a launch with at least one thread per element, in blocks of `block` threads. Zero elements still launch one block.
    pub fn for_elements(elements: usize, block: u32) -> Launch {
        let blocks = elements.div_ceil(block.max(1) as usize).max(1);
        // The launch, which knows the device's limit, reports too many blocks.
        Launch::new([u32::try_from(blocks).unwrap_or(u32::MAX), 1, 1], [block, 1, 1])
    }

    /// Sets the bytes of dynamic shared memory.
    pub fn shared(self, bytes: u32) -> Launch {
        Launch { shared: bytes, ..self }
    }

    /// Makes it a cooperative launch; see [`Launch::cooperative`].
    pub fn cooperative(self) -> Launch {
        Launch { cooperative: true, ..self }
    }

    /// Makes it a programmatic dependent launch; see [`Launch::pdl`].
    pub fn pdl(self) -> Launch {
        Launch { pdl: true, ..self }
    }
}

/// Returns a block size for when the driver's occupancy query fails: smaller for kernels with many operations per element (`complexity`
/// above 100), and smaller on AMD, where 256 threads are already four waves.
pub fn default_block_size(vendor: Vendor, complexity: u32) -> u32 {
    match (vendor, complexity > 100) {
        (Vendor::Nvidia, true) | (Vendor::Amd, false) => 256,
        (Vendor::Nvidia, false) => 512,
        (Vendor::Amd, true) => 128,
    }
}

impl Kernel {
    /// Launches the kernel on `stream`.
    ///
    /// Checked before the driver is called: the device of the stream and of every buffer, grid and block against the device's limits, and
    /// the number and sizes of the arguments where they are known.
    ///
    /// # Safety
    /// The arguments must have the types of the kernel's parameters. The kernel must stay within the buffers it is given and write only to
    /// those passed by `&mut`. With [`Launch::pdl`], each thread must call `griddepcontrol.wait` before it touches memory that earlier work
    /// in the stream writes.
    pub unsafe fn launch<'a>(&self, stream: &Stream, launch: Launch, args: impl Args<'a>) -> Result<()> {
        let args = args.into_array();
        let args = args.as_ref();
        let device = self.device();
        stream.check_same_device(device, "the kernel")?;
        self.check_shape(&launch)?;
        self.check_arguments(stream, args)?;
        self.allow_shared(launch.shared)?;
        // SAFETY: as the caller guarantees.
        let enqueue = || unsafe { self.enqueue(stream, launch, args) };
        if stream.measures() { stream.measure(&self.name, enqueue) } else { enqueue() }
    }

    /// Enqueues a launch whose arguments were checked.
    ///
    /// # Safety
    /// As [`Kernel::launch`].
    unsafe fn enqueue(&self, stream: &Stream, launch: Launch, args: &[Arg<'_>]) -> Result<()> {
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
        // Graphs support PDL since CUDA 12.3.
        let version = device.driver().version();
        let too_old_for_capture = || stream.capture().is_some() && (version.major, version.minor) < (12, 3);
        let pdl = launch.pdl && device.info().dependent_launch && !too_old_for_capture();
        // SAFETY: the function and the stream are live; the parameters fit as checked, and as the caller guarantees.
        device.check(unsafe {
            if launch.cooperative {
                table.launch_cooperative(self.raw, gx, gy, gz, bx, by, bz, launch.shared, stream.raw(), params.as_mut_ptr())
            } else if pdl {
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

    fn invalid(&self, reason: String) -> Error {
        Error::InvalidLaunch { kernel: self.name.clone(), device: self.device().name().to_owned(), reason }
    }

    fn check_shape(&self, launch: &Launch) -> Result<()> {
        let info = self.device().info();
        let Launch { grid, block, shared, .. } = *launch;
        for axis in 0..3 {
            let name = ["x", "y", "z"][axis];
            if grid[axis] == 0 || block[axis] == 0 {
                return Err(self.invalid(format!("grid {grid:?} with block {block:?}: every dimension must be at least 1")));
            }
            // A limit that the driver does not report is 0.
            if info.max_grid[axis] > 0 && grid[axis] > info.max_grid[axis] {
                return Err(self.invalid(format!("grid {name} is {}, but the device limit is {}", grid[axis], info.max_grid[axis])));
            }
            if info.max_block[axis] > 0 && block[axis] > info.max_block[axis] {
                return Err(self.invalid(format!("block {name} is {}, but the device limit is {}", block[axis], info.max_block[axis])));
            }
            if info.vendor == Vendor::Amd && u64::from(grid[axis]) * u64::from(block[axis]) > u64::from(u32::MAX) {
                return Err(self.invalid(format!(
                    "grid x block in {name} is {} x {}, but AMD GPUs are limited to 2^32 - 1 threads per dimension",
                    grid[axis], block[axis]
                )));
            }
        }
        let threads: u64 = block.iter().map(|n| u64::from(*n)).product();
        if self.max_threads > 0 && threads > u64::from(self.max_threads) {
            return Err(self.invalid(format!("block has {threads} threads, but this kernel supports at most {}", self.max_threads)));
        }
        let all_shared = self.static_shared + shared as usize;
        if info.shared_per_block_max > 0 && all_shared > info.shared_per_block_max {
            let limit = info.shared_per_block_max;
            return Err(self.invalid(format!(
                "the launch needs {all_shared} bytes of shared memory ({shared} dynamic), but the device limit is {limit}"
            )));
        }
        if launch.cooperative && !info.cooperative_launch {
            return Err(self.invalid("the device does not support cooperative launches".to_owned()));
        }
        Ok(())
    }

    fn check_arguments(&self, stream: &Stream, args: &[Arg<'_>]) -> Result<()> {
        let mismatch = |reason| Error::ArgumentMismatch { kernel: self.name.clone(), reason };
        if let Some(sizes) = self.parameters.get_or_init(|| self.query_parameters()) {
            if sizes.len() != args.len() {
                return Err(mismatch(format!("expected {} arguments, got {}", sizes.len(), args.len())));
            }
            for (index, (size, arg)) in sizes.iter().zip(args).enumerate() {
                let given = arg.as_bytes().len();
                if given != *size {
                    return Err(mismatch(format!("argument {index}: expected {size} bytes, got {given}")));
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

    /// Returns the sizes of the parameters. AMD code objects state them. On NVIDIA the driver (12.4+) takes precedence over our reading of
    /// an undocumented cubin section, and PTX states nothing: there the driver is queried until the index is out of range.
    fn query_parameters(&self) -> Option<Vec<usize>> {
        let kind = self.module.code().map(|code| code.kind);
        let stated = self.stated_parameters.clone().filter(|_| kind != Some(CodeKind::Ptx));
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
}
