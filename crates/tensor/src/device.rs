//! Where tensors live.

use std::fmt;
use std::sync::Arc;

use warpwave_gpu::{Buffer, Stream};
use warpwave_jit::Jit;
use warpwave_kernels::Kernels;

use crate::error::{Error, Result};

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

    /// Bytes that are free, where the system says. What the CPU emulates takes the computer's memory, too.
    pub fn free_memory(&self) -> Option<u64> {
        let of_gpu = match self {
            Device::Gpu(gpu) => gpu.stream.device().memory().ok().map(|memory| memory.free as u64),
            Device::Cpu => None,
        };
        let of_computer = if self.is_cpu() || self.is_virtual() { free_of_computer() } else { None };
        [of_gpu, of_computer].into_iter().flatten().min()
    }

    /// Whether it is a GPU that the CPU emulates.
    pub fn is_virtual(&self) -> bool {
        matches!(self, Device::Gpu(gpu) if gpu.stream.device().info().is_virtual)
    }

    /// Gives memory back that is kept for later, once all work is done.
    pub fn trim(&self) -> Result<()> {
        if let Device::Gpu(gpu) = self {
            gpu.stream.synchronize()?;
            gpu.stream.device().trim_pool()?;
        }
        Ok(())
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

/// Refuses so many bytes of the computer's memory where the system does not give them: where a vector cannot have its memory, the program
/// ends. They are taken and given back, untouched.
pub fn ask_for(bytes: usize) -> Result<()> {
    let mut memory = Vec::<u8>::new();
    let given = memory.try_reserve_exact(bytes);
    // Or the compiler takes for given what nobody uses.
    std::hint::black_box(&memory);
    given.map_err(|_| Error::OutOfMemory { bytes, free: free_of_computer() })
}

/// What this computer has free, or this process's control group or limits if that is less.
fn free_of_computer() -> Option<u64> {
    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let first = |text: &str| text.split_whitespace().next()?.parse::<u64>().ok();
    let line = |text: &str, start: &str| text.lines().find_map(|line| line.strip_prefix(start).and_then(first));
    let [computer, status, limits] = ["/proc/meminfo", "/proc/self/status", "/proc/self/limits"].map(read);
    let available = line(&computer, "MemAvailable:").map(|kib| kib.saturating_mul(1024));
    let [most, now, stat] = ["memory.max", "memory.current", "memory.stat"].map(|file| read(&format!("/sys/fs/cgroup/{file}")));
    // Pages of files that were read count as taken, and are given back when others are asked for.
    let files = ["inactive_file ", "active_file "].iter().filter_map(|name| line(&stat, name)).sum();
    let group = [first(&most), first(&now).map(|now| now.saturating_sub(files))];
    let limit = |limit: &str, taken: &str| [line(&limits, limit), line(&status, taken).map(|kib| kib.saturating_mul(1024))];
    let bounds = [group, limit("Max address space", "VmSize:"), limit("Max data size", "VmData:")];
    let left = bounds.into_iter().filter_map(|[most, now]| Some(most?.saturating_sub(now?)));
    left.chain(available).min()
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
