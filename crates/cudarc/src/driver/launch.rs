//! Launches.

use std::sync::Arc;

use warpwave::gpu::{Arg, Launch};

use super::module::CudaFunction;
use super::slice::{CudaSlice, CudaView, CudaViewMut};
use super::stream::{CudaEvent, CudaStream};
use super::traits::DeviceRepr;
use crate::error::DriverError;
use crate::gpu::Memory;

/// The shape of a launch.
#[derive(Debug, Clone, Copy)]
pub struct LaunchConfig {
    /// Blocks in each direction.
    pub grid_dim: (u32, u32, u32),
    /// Threads of a block in each direction.
    pub block_dim: (u32, u32, u32),
    /// Bytes of dynamic shared memory.
    pub shared_mem_bytes: u32,
}

impl LaunchConfig {
    /// Returns a shape with a thread for each element, in blocks of 1024.
    pub fn for_num_elems(n: u32) -> LaunchConfig {
        const THREADS: u32 = 1024;
        LaunchConfig { grid_dim: (n.div_ceil(THREADS), 1, 1), block_dim: (THREADS, 1, 1), shared_mem_bytes: 0 }
    }
}

/// A launch with its arguments so far.
pub struct LaunchArgs<'a> {
    stream: &'a CudaStream,
    function: &'a CudaFunction,
    arguments: Vec<Argument<'a>>,
}

#[derive(Clone, Copy)]
enum Argument<'a> {
    Value(&'a [u8]),
    Memory { memory: &'a Arc<Memory>, start: usize, bytes: usize },
}

impl CudaStream {
    /// Begins a launch.
    pub fn launch_builder<'a>(&'a self, function: &'a CudaFunction) -> LaunchArgs<'a> {
        LaunchArgs { stream: self, function, arguments: Vec::new() }
    }
}

/// Types that can be arguments of a kernel.
///
/// # Safety
/// The bytes that are passed must be those of the kernel's parameter.
pub unsafe trait PushKernelArg<T> {
    /// Adds an argument.
    fn arg(&mut self, argument: T) -> &mut Self;
}

// SAFETY: the value's own bytes are passed.
unsafe impl<'a, 'b: 'a, T: DeviceRepr> PushKernelArg<&'b T> for LaunchArgs<'a> {
    fn arg(&mut self, argument: &'b T) -> &mut Self {
        // SAFETY: the value lives as long as the launch, and kernels accept its bytes, as `DeviceRepr` says; they are only copied.
        let bytes = unsafe { std::slice::from_raw_parts(std::ptr::from_ref(argument).cast::<u8>(), size_of::<T>()) };
        self.arguments.push(Argument::Value(bytes));
        self
    }
}

// SAFETY: the address is passed.
unsafe impl<'a, 'b: 'a, T> PushKernelArg<&'b CudaSlice<T>> for LaunchArgs<'a> {
    fn arg(&mut self, argument: &'b CudaSlice<T>) -> &mut Self {
        self.memory(argument.place())
    }
}

// SAFETY: as above.
unsafe impl<'a, 'b: 'a, T> PushKernelArg<&'b mut CudaSlice<T>> for LaunchArgs<'a> {
    fn arg(&mut self, argument: &'b mut CudaSlice<T>) -> &mut Self {
        self.memory(argument.place())
    }
}

// SAFETY: as above.
unsafe impl<'a, 'b: 'a, 'c: 'b, T> PushKernelArg<&'b CudaView<'c, T>> for LaunchArgs<'a> {
    fn arg(&mut self, argument: &'b CudaView<'c, T>) -> &mut Self {
        self.memory(argument.place())
    }
}

// SAFETY: as above.
unsafe impl<'a, 'b: 'a, 'c: 'b, T> PushKernelArg<&'b mut CudaViewMut<'c, T>> for LaunchArgs<'a> {
    fn arg(&mut self, argument: &'b mut CudaViewMut<'c, T>) -> &mut Self {
        self.memory(argument.place())
    }
}

impl<'a> LaunchArgs<'a> {
    fn memory(&mut self, (memory, start, bytes): (&'a Arc<Memory>, usize, usize)) -> &mut Self {
        self.arguments.push(Argument::Memory { memory, start, bytes });
        self
    }

    /// Queues the launch. Returns `None`: times are not recorded.
    ///
    /// Checked before: the device of the kernel and of all memory, the shape against the device's limits, the number of arguments and their
    /// sizes.
    ///
    /// # Safety
    /// The arguments must have the types of the kernel's parameters, and the kernel must stay within the memory it is given.
    pub unsafe fn launch(&mut self, config: LaunchConfig) -> Result<Option<(CudaEvent, CudaEvent)>, DriverError> {
        let stream = self.stream.raw();
        self.stream.context().gpu.check()?;
        let mut arguments = Vec::with_capacity(self.arguments.len());
        for argument in &self.arguments {
            arguments.push(match *argument {
                Argument::Value(bytes) => Arg::bytes(bytes),
                Argument::Memory { memory, start, bytes } => {
                    memory.acquire(stream)?;
                    Arg::from(memory.slice(start, bytes)?)
                }
            });
        }
        let (grid, block) = (config.grid_dim, config.block_dim);
        let launch = Launch::new([grid.0, grid.1, grid.2], [block.0, block.1, block.2]).shared(config.shared_mem_bytes);
        // SAFETY: the caller guarantees that the arguments fit the kernel.
        unsafe { self.function.kernel.launch(stream, launch, &arguments[..]) }?;
        Ok(None)
    }
}
