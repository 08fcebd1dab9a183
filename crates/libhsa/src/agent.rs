//! Agents: the host's CPU, and a GPU for each virtual device.

use std::ffi::{c_char, c_void};
use std::sync::atomic::Ordering;

use crate::runtime::{Device, Runtime, put, put_text, runtime, visit};
use crate::status::{Result, Status};
use crate::types::{Dim3, Handle, Visit};
use crate::{log, queue, system};
use warpwave_vgpu::Arch;
use warpwave_vgpu::hip::model;

/// Extensions: images, without which HIP refuses pitched memory. Its functions are refused all the same.
const EXTENSIONS: [u8; 128] = {
    let mut bits = [0; 128];
    bits[0] = 1 << 1;
    bits
};

/// Handles of agents and ISAs: a tag and an index, so that other numbers are not taken for one.
const AGENT: u64 = 0x5741_4745_0000_0000;
const ISA: u64 = 0x5749_5341_0000_0000;
/// The CPU comes first, then the devices.
pub const CPU: Handle = AGENT;

/// An agent.
#[derive(Clone, Copy)]
pub enum Agent {
    /// The host.
    Cpu,
    /// The device with this index.
    Gpu(usize, &'static Device),
}

impl Runtime {
    /// Returns the agents' handles.
    pub fn agents(&self) -> impl Iterator<Item = Handle> + use<> {
        (0..=self.devices.len() as u64).map(|index| AGENT + index)
    }

    /// Returns the agent of a handle.
    pub fn agent(&'static self, handle: Handle) -> Result<Agent> {
        let index = handle.checked_sub(AGENT).and_then(|index| usize::try_from(index).ok()).ok_or(Status::INVALID_AGENT)?;
        let Some(index) = index.checked_sub(1) else { return Ok(Agent::Cpu) };
        Ok(Agent::Gpu(index, self.devices.get(index).ok_or(Status::INVALID_AGENT)?))
    }

    /// Returns the device of a handle; the CPU is an error.
    pub fn device(&'static self, handle: Handle) -> Result<(usize, &'static Device)> {
        match self.agent(handle)? {
            Agent::Gpu(index, device) => Ok((index, device)),
            Agent::Cpu => Err(Status::INVALID_AGENT),
        }
    }

    fn isa(&'static self, handle: Handle) -> Result<&'static Device> {
        let index = handle.checked_sub(ISA).and_then(|index| usize::try_from(index).ok());
        index.and_then(|index| self.devices.get(index)).ok_or(Status::INVALID_ISA)
    }
}

/// Returns the handle of a device's agent.
pub fn handle(index: usize) -> Handle {
    AGENT + 1 + index as u64
}

/// # Safety
/// `callback` must accept agents and `data`.
pub unsafe fn hsa_iterate_agents(callback: Visit, data: *mut c_void) -> Result {
    let callback = callback.ok_or(Status::INVALID_ARGUMENT)?;
    // SAFETY: the caller's promise.
    visit(runtime()?.agents(), |agent| unsafe { callback(agent, data) })
}

/// # Safety
/// `callback` must accept ISAs and `data`.
pub unsafe fn hsa_agent_iterate_isas(agent: Handle, callback: Visit, data: *mut c_void) -> Result {
    let callback = callback.ok_or(Status::INVALID_ARGUMENT)?;
    let isa = match runtime()?.agent(agent)? {
        Agent::Cpu => None,
        Agent::Gpu(index, _) => Some(ISA + index as u64),
    };
    // SAFETY: the caller's promise.
    visit(isa, |isa| unsafe { callback(isa, data) })
}

/// Reports no caches.
pub fn hsa_agent_iterate_caches(agent: Handle, callback: Visit, _data: *mut c_void) -> Result {
    callback.ok_or(Status::INVALID_ARGUMENT)?;
    runtime()?.agent(agent).map(|_| ())
}

fn isa_name(arch: Arch) -> String {
    format!("amdgcn-amd-amdhsa--{}", arch.target_id())
}

/// # Safety
/// `name` must be a C string and `to` writable, unless null.
pub unsafe fn hsa_isa_from_name(name: *const c_char, to: *mut Handle) -> Result {
    let runtime = runtime()?;
    if name.is_null() {
        return Err(Status::INVALID_ARGUMENT);
    }
    // SAFETY: the caller's promise.
    let name = unsafe { std::ffi::CStr::from_ptr(name) };
    let found = runtime.devices.iter().position(|device| isa_name(device.arch).as_bytes() == name.to_bytes());
    let index = found.ok_or(Status::INVALID_ISA_NAME)?;
    // SAFETY: the caller's promise.
    unsafe { crate::runtime::write(to, ISA + index as u64) }
}

/// # Safety
/// `to` must be null or writable for the attribute's type.
pub unsafe fn hsa_isa_get_info_alt(isa: Handle, attribute: u32, to: *mut c_void) -> Result {
    let arch = runtime()?.isa(isa)?.arch;
    let name = isa_name(arch);
    // SAFETY: the caller's promise.
    unsafe {
        match attribute {
            0 => put(to, name.len() as u32 + 1),
            1 if to.is_null() => Err(Status::INVALID_ARGUMENT),
            1 => {
                std::ptr::copy_nonoverlapping(name.as_ptr(), to.cast(), name.len());
                to.cast::<u8>().add(name.len()).write(0);
                Ok(())
            }
            // Machine models (large) and profiles (base): arrays of two flags.
            5 => put(to, [false, true]),
            6 => put(to, [true, false]),
            // Rounding modes: to nearest.
            7 | 8 => put(to, [false, false, true]),
            9 => put(to, true),
            12 => put(to, [model::MAX_BLOCK as u16; 3]),
            13 => put(to, model::MAX_BLOCK),
            14 => put(to, Dim3 { x: u32::MAX, y: u32::MAX, z: u32::MAX }),
            16 => put(to, u64::from(u32::MAX)),
            17 => put(to, 32u32),
            _ => Err(Status::INVALID_ARGUMENT),
        }
    }
}

/// # Safety
/// As for [`hsa_isa_get_info_alt`].
pub unsafe fn hsa_isa_get_info(isa: Handle, attribute: u32, _index: u32, to: *mut c_void) -> Result {
    // SAFETY: the caller's promise.
    unsafe { hsa_isa_get_info_alt(isa, attribute, to) }
}

/// # Safety
/// `to` must be writable for the attribute's type, unless it is null.
pub unsafe fn hsa_agent_get_info(agent: Handle, attribute: u32, to: *mut c_void) -> Result {
    let runtime = runtime()?;
    // SAFETY: the caller's promise.
    unsafe {
        match runtime.agent(agent)? {
            Agent::Cpu => cpu_info(attribute, to),
            Agent::Gpu(index, device) => gpu_info(index, device, attribute, to),
        }
    }
}

/// Returns the name of the CPU.
fn cpu_name() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    line.map_or_else(|| "CPU".to_owned(), |(_, name)| name.trim().to_owned())
}

/// # Safety
/// As for [`hsa_agent_get_info`].
unsafe fn cpu_info(attribute: u32, to: *mut c_void) -> Result {
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as u32;
    // SAFETY: the caller's promise.
    unsafe {
        match attribute {
            0 | 0xA009 => put_text::<64>(to, &cpu_name()),
            1 => put_text::<64>(to, "CPU"),
            // It executes no packets: no features, queues, wavefronts or workgroups.
            2 | 6 | 8 | 10 | 11 | 12 | 13 | 14 | 15 => put(to, 0u32),
            // Profile: full.
            4 => put(to, 1u32),
            7 => put(to, [0u16; 3]),
            9 => put(to, Dim3 { x: 0, y: 0, z: 0 }),
            17 => put(to, 0u32),
            19 => put(to, 0u64),
            24 => put(to, false),
            0xA002 => put(to, cores),
            0xA004 => put(to, 0u32),
            0xA011 => put_text::<21>(to, "CPU-XX"),
            _ => common_info(attribute, to),
        }
    }
}

/// Writes attributes that both kinds of agents have alike.
///
/// # Safety
/// As for [`hsa_agent_get_info`].
unsafe fn common_info(attribute: u32, to: *mut c_void) -> Result {
    // SAFETY: the caller's promise.
    unsafe {
        match attribute {
            // 64 bits, rounding to nearest.
            3 => put(to, 1u32),
            5 => put(to, 2u32),
            23 => put(to, 4u32),
            16 => put(to, 0u32),
            18 => put(to, [0u32; 4]),
            20 => put(to, EXTENSIONS),
            21 => put(to, 1u16),
            22 => put(to, 1u16),
            0xA000 | 0xA003 | 0xA005..=0xA008 | 0xA00A..=0xA00D | 0xA00F | 0xA012 | 0xA014 => put(to, 0u32),
            0xA001 => put(to, 64u32),
            0xA00E => put(to, [0u64; 2]),
            0xA010 | 0xA013 => put(to, false),
            0xA107..=0xA10B | 0xA110 | 0xA111 | 0xA112 => put(to, 0u32),
            0xA113 => put(to, CPU),
            0xA114 | 0xA115 => put(to, [0u8; 8]),
            0xA116 | 0xA117 => put(to, 0u64),
            _ => {
                log::debug(format_args!("unknown agent attribute {attribute:#x}"));
                Err(Status::INVALID_ARGUMENT)
            }
        }
    }
}

/// # Safety
/// As for [`hsa_agent_get_info`].
unsafe fn gpu_info(index: usize, device: &Device, attribute: u32, to: *mut c_void) -> Result {
    let (model, arch) = (device.model, device.arch);
    // SAFETY: the caller's promise.
    unsafe {
        match attribute {
            0 => put_text::<64>(to, arch.name()),
            1 => put_text::<64>(to, "AMD"),
            // It executes kernel dispatch packets.
            2 => put(to, 1u32),
            4 => put(to, 0u32),
            6 => put(to, arch.wave_size()),
            7 => put(to, [model::MAX_BLOCK as u16; 3]),
            8 => put(to, model::MAX_BLOCK),
            9 => put(to, Dim3 { x: u32::MAX, y: u32::MAX, z: u32::MAX }),
            10 => put(to, u32::MAX),
            11 => put(to, 32u32),
            12 => put(to, queue::MAX_QUEUES),
            13 => put(to, queue::MIN_SIZE),
            14 => put(to, queue::MAX_SIZE),
            // Several threads may write packets.
            15 => put(to, 0u32),
            16 | 0xA004 => put(to, index as u32 + 1),
            // A GPU.
            17 => put(to, 1u32),
            18 => put(to, [16 << 10, model.l2, 0, 0]),
            19 => put(to, ISA + index as u64),
            24 => put(to, true),
            // The largest images: elements of one dimension, of two, and of three; layers; handles; and the pitch's alignment.
            0x3000..=0x3002 => put(to, 16384u32),
            0x3003..=0x3006 => put(to, [16384u32; 2]),
            0x3007 => put(to, [16384u32, 16384, 8192]),
            0x3008 => put(to, 8192u32),
            0x3009 | 0x300A => put(to, 128u32),
            0x300B => put(to, 16u32),
            0x300C => put(to, 256u32),
            0xA000 => put(to, 0x7400 + arch.elf_mach()),
            0xA002 | 0xA014 => put(to, model.compute_units),
            0xA003 => put(to, model.clock_khz / 1000),
            0xA005 => put(to, 4u32),
            // Bus, device and function of PCI.
            0xA006 => put(to, (index as u32 + 1) << 8),
            0xA007 => put(to, model.memory_bus_bits),
            0xA008 => put(to, model.memory_clock_khz / 1000),
            0xA009 => put_text::<64>(to, model.name),
            0xA00A => put(to, model.waves_per_simd * model::SIMDS),
            0xA00B => put(to, model::SIMDS),
            0xA00C => put(to, 8u32),
            0xA00D => put(to, 1u32),
            0xA010 | 0xA013 => put(to, true),
            0xA011 => put_text::<21>(to, &format!("GPU-{:016x}", 0x5757_0000_0000_0000 | u64::from(arch.elf_mach()) << 16 | index as u64)),
            0xA015 => put(to, device.memory.saturating_sub(device.used.load(Ordering::Relaxed))),
            0xA016 => put(to, system::TICKS_PER_SECOND),
            // Copy engines, between the host and to other cards.
            0xA10A => put(to, 2u32),
            0xA111 => put(to, 1u32),
            0xA112 => put(to, index as u32 + 1),
            0xA116 | 0xA117 => put(to, device.memory),
            // The clocks of the GPU, the CPU and the system, and the frequency of the last.
            0xA118 => put(to, [system::now(), system::now(), system::now(), system::TICKS_PER_SECOND]),
            _ => common_info(attribute, to),
        }
    }
}

pub fn hsa_amd_agent_set_async_scratch_limit(agent: Handle, _bytes: usize) -> Result {
    runtime()?.device(agent).map(|_| ())
}

pub fn hsa_amd_coherency_set_type(agent: Handle, kind: u32) -> Result {
    runtime()?.agent(agent)?;
    if kind <= 1 { Ok(()) } else { Err(Status::INVALID_ARGUMENT) }
}

/// # Safety
/// `to` must be null or writable.
pub unsafe fn hsa_amd_coherency_get_type(agent: Handle, to: *mut u32) -> Result {
    runtime()?.agent(agent)?;
    // SAFETY: the caller's promise.
    unsafe { crate::runtime::write(to, 0) }
}
