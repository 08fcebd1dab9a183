//! Devices that tensors live on.

use std::fmt;
use std::sync::Arc;

use warpwave_gpu::{DeviceSpec, Devices, Selection};
use warpwave_jit::Jit;
use warpwave_kernels::Kernels;

use crate::backend::{Backend, Operand, Storage};
use crate::cpu::Cpu;
use crate::error::{Error, Result};
use crate::gpu::Gpu;
use crate::meta::Meta;

/// A device. Clones are the same device.
#[derive(Clone)]
pub enum Device {
    /// The host's processor.
    Cpu,
    /// A GPU, real or virtual, with its stream.
    Gpu(Arc<Gpu>),
    /// Shapes and sizes without data: runs a computation only to count its memory. See [`Device::meta`].
    Meta(Arc<Meta>),
}

impl Device {
    /// Creates a device for a GPU, with a stream of its own.
    pub fn gpu(device: &warpwave_gpu::Device, jit: &Jit) -> Result<Device> {
        Ok(Device::Gpu(Arc::new(Gpu { kernels: Kernels::new(device, jit), stream: device.stream()? })))
    }

    /// Opens the GPU `cuda:{ordinal}`; the CPU if the machine has no such GPU.
    pub fn cuda_if_available(ordinal: usize) -> Result<Device> {
        match Devices::hardware().get(&format!("cuda:{ordinal}")) {
            Ok(gpu) => Device::gpu(&gpu, &Jit::default()),
            Err(_) => Ok(Device::Cpu),
        }
    }

    /// Opens the first NVIDIA or AMD GPU of the machine; the CPU without one.
    pub fn gpu_if_available() -> Result<Device> {
        match Devices::hardware().select(&DeviceSpec::Auto)? {
            Selection::Gpu(gpu) => Device::gpu(&gpu, &Jit::default()),
            Selection::Cpu { .. } => Ok(Device::Cpu),
        }
    }

    /// Creates a meta device that allocates what `like` would allocate, without data. Nothing is computed; reading elements is an error.
    pub fn meta(like: &Device) -> Device {
        Device::Meta(Arc::new(Meta::new(like)))
    }

    /// The backend of this device: the only place that tells devices apart.
    pub(crate) fn backend(&self) -> &dyn Backend {
        match self {
            Device::Cpu => &Cpu,
            Device::Gpu(gpu) => &**gpu,
            Device::Meta(meta) => &**meta,
        }
    }

    /// The device name: `cpu`, `cuda:0`, `rocm:0`, `vgpu:gfx90a`, `meta`.
    pub fn name(&self) -> &str {
        match self {
            Device::Cpu => "cpu",
            Device::Gpu(gpu) => gpu.stream.device().name(),
            Device::Meta(_) => "meta",
        }
    }

    /// Whether this is the CPU, or a meta device like the CPU.
    pub fn is_cpu(&self) -> bool {
        match self {
            Device::Cpu => true,
            Device::Gpu(_) => false,
            Device::Meta(meta) => meta.like().is_cpu(),
        }
    }

    /// Whether this is a virtual GPU, which runs on the CPU.
    pub fn is_virtual(&self) -> bool {
        match self {
            Device::Cpu => false,
            Device::Gpu(gpu) => gpu.stream.device().info().is_virtual,
            Device::Meta(meta) => meta.like().is_virtual(),
        }
    }

    /// Returns the free bytes, where the system reports them. A virtual GPU also uses host memory.
    pub fn free_memory(&self) -> Option<u64> {
        let on_gpu = match self {
            Device::Gpu(gpu) => gpu.stream.device().memory().ok().map(|memory| memory.free as u64),
            Device::Cpu | Device::Meta(_) => None,
        };
        let on_host = if self.is_cpu() || self.is_virtual() { free_host_memory() } else { None };
        [on_gpu, on_host].into_iter().flatten().min()
    }

    /// Waits for queued work and returns pooled memory to the driver.
    pub fn trim(&self) -> Result<()> {
        if let Device::Gpu(gpu) = self {
            gpu.stream.synchronize()?;
            gpu.stream.device().trim_pool()?;
        }
        Ok(())
    }

    /// Waits for queued work.
    pub fn synchronize(&self) -> Result<()> {
        self.backend().synchronize()
    }

    /// Copies a contiguous tensor of this device to another one. Between GPUs the copy is queued.
    pub(crate) fn transfer(&self, x: &Operand<'_>, to: &Device) -> Result<Storage> {
        match (self, to, x.storage) {
            (Device::Gpu(from), Device::Gpu(to), Storage::Gpu(buffer)) => {
                let (size, len) = (x.dtype.size(), x.layout.len() * x.dtype.size());
                let start = if x.layout.is_empty() { 0 } else { x.layout.offset() * size };
                let mut copy = to.stream.alloc(len)?;
                from.stream.copy_to_peer(buffer.slice(start..start + len)?, &to.stream, &mut copy)?;
                Ok(Storage::Gpu(copy))
            }
            (_, Device::Meta(to), _) => to.alloc(x.layout.len() * x.dtype.size()),
            _ => to.backend().upload(&self.backend().download(x)?),
        }
    }
}

/// Fails if the system cannot provide `bytes` of host memory. The memory is reserved and released untouched: a failed `Vec` allocation
/// would abort the process instead.
pub fn check_host_memory(bytes: usize) -> Result<()> {
    let mut memory = Vec::<u8>::new();
    let reserved = memory.try_reserve_exact(bytes);
    // Keeps the compiler from removing the unused reservation.
    std::hint::black_box(&memory);
    reserved.map_err(|_| Error::OutOfMemory { bytes, free: free_host_memory() })
}

/// Free memory of the host, or of this process's control group or limits if that is less.
fn free_host_memory() -> Option<u64> {
    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let first = |text: &str| text.split_whitespace().next()?.parse::<u64>().ok();
    let line = |text: &str, start: &str| text.lines().find_map(|line| line.strip_prefix(start).and_then(first));
    let [meminfo, status, limits] = ["/proc/meminfo", "/proc/self/status", "/proc/self/limits"].map(read);
    let available = line(&meminfo, "MemAvailable:").map(|kib| kib.saturating_mul(1024));
    let [max, current, stat] = ["memory.max", "memory.current", "memory.stat"].map(|file| read(&format!("/sys/fs/cgroup/{file}")));
    // Cached file pages count as used, but are reclaimed on demand.
    let files = ["inactive_file ", "active_file "].iter().filter_map(|name| line(&stat, name)).sum();
    let group = [first(&max), first(&current).map(|current| current.saturating_sub(files))];
    let limit = |limit: &str, used: &str| [line(&limits, limit), line(&status, used).map(|kib| kib.saturating_mul(1024))];
    let bounds = [group, limit("Max address space", "VmSize:"), limit("Max data size", "VmData:")];
    let left = bounds.into_iter().filter_map(|[max, used]| Some(max?.saturating_sub(used?)));
    left.chain(available).min()
}

impl PartialEq for Device {
    fn eq(&self, other: &Device) -> bool {
        match (self, other) {
            (Device::Cpu, Device::Cpu) => true,
            (Device::Gpu(a), Device::Gpu(b)) => Arc::ptr_eq(a, b),
            (Device::Meta(a), Device::Meta(b)) => Arc::ptr_eq(a, b),
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
