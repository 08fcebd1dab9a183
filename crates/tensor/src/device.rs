//! Where tensors live.

use std::fmt;
use std::sync::Arc;

use warpwave_gpu::{Buffer, Stream};
use warpwave_jit::Jit;
use warpwave_kernels::Kernels;

use crate::error::Result;

/// A CPU, or a GPU with the stream that its work is queued on. Clones are the same device.
#[derive(Clone)]
pub enum Device {
    /// This computer's processor.
    Cpu,
    /// A GPU, or a virtual one.
    Gpu(Arc<Gpu>),
}

/// A GPU ready for work.
pub struct Gpu {
    /// The kernel library on it.
    pub kernels: Kernels,
    /// Where the work of all tensors is queued, in order.
    pub stream: Stream,
}

impl Device {
    /// A GPU, with a stream of its own.
    pub fn gpu(device: &warpwave_gpu::Device, jit: &Jit) -> Result<Device> {
        Ok(Device::Gpu(Arc::new(Gpu { kernels: Kernels::new(device, jit), stream: device.stream()? })))
    }

    /// Its name: `cpu`, `cuda:0`, `rocm:0`, `vgpu:gfx90a`.
    pub fn name(&self) -> &str {
        match self {
            Device::Cpu => "cpu",
            Device::Gpu(gpu) => gpu.stream.device().name(),
        }
    }

    /// Whether it is the CPU.
    pub fn is_cpu(&self) -> bool {
        matches!(self, Device::Cpu)
    }

    /// Whether it is a GPU that the CPU emulates.
    pub fn is_virtual(&self) -> bool {
        self.name().starts_with("vgpu:")
    }

    /// Waits until all work is done.
    pub fn synchronize(&self) -> Result<()> {
        match self {
            Device::Cpu => Ok(()),
            Device::Gpu(gpu) => Ok(gpu.stream.synchronize()?),
        }
    }
}

impl Gpu {
    /// Memory that is freed in the order of the stream.
    pub(crate) fn alloc(&self, bytes: usize) -> Result<Buffer<u8>> {
        Ok(self.stream.alloc(bytes)?)
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Device) -> bool {
        match (self, other) {
            (Device::Cpu, Device::Cpu) => true,
            (Device::Gpu(a), Device::Gpu(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
