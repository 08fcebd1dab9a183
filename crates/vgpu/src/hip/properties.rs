//! Device properties: attributes, and both layouts of `hipDeviceProp_t`.

use std::ffi::{c_int, c_void};

use super::device::{pci, uuid_digits};
use super::error::{HipError, Status};
use super::model;
use super::runtime::{Device, runtime};
use super::types::Out;
use crate::arch::Arch;

const CONSTANT_MEMORY: u32 = i32::MAX as u32;
const TEXTURE_ALIGNMENT: u32 = 256;
/// Bytes of `hipDeviceProp_tR0600`.
const R0600_BYTES: usize = 1472;
/// Bytes of `hipDeviceProp_tR0000`.
const R0000_BYTES: usize = 792;

/// Returns HIP's compute capability: the first digits of the architecture.
pub(super) fn capability(arch: Arch) -> (u32, u32) {
    match arch {
        Arch::Gfx906 | Arch::Gfx908 | Arch::Gfx90a => (9, 0),
        Arch::Gfx942 => (9, 4),
        Arch::Gfx1010 => (10, 1),
        Arch::Gfx1030 => (10, 3),
        Arch::Gfx1100 => (11, 0),
        Arch::Gfx1201 => (12, 0),
    }
}

/// Returns a device attribute by its `hipDeviceAttribute_t` value, which is the same from ROCm 5 on.
fn attribute_of(device: &Device, number: c_int) -> Option<u32> {
    let model = device.model;
    Some(match number {
        0 => 1,                                    // EccEnabled
        2 => 1,                                    // AsyncEngineCount
        3 | 4 => 1,                                // CanMapHostMemory, CanUseHostPointerForRegisteredMem
        5 | 10000 => model.clock_khz,              // ClockRate, ClockInstructionRate
        6 => 0,                                    // ComputeMode: default
        7 => 0,                                    // ComputePreemptionSupported
        8 | 9 => 1,                                // ConcurrentKernels, ConcurrentManagedAccess
        10 => 1,                                   // CooperativeLaunch
        11 => 0,                                   // CooperativeMultiDeviceLaunch
        12 | 13 => 1,                              // DeviceOverlap, DirectManagedMemAccessFromHost
        14 => 1,                                   // GlobalL1CacheSupported
        15 => 1,                                   // HostNativeAtomicSupported
        16..=18 => 0,                              // Integrated, IsMultiGpuBoard, KernelExecTimeout
        19 => model.l2,                            // L2CacheSize
        20 => 1,                                   // LocalL1CacheSupported
        23 => capability(device.arch).0,           // ComputeCapabilityMajor
        61 => capability(device.arch).1,           // ComputeCapabilityMinor
        24 => 1,                                   // ManagedMemory
        25 => model.waves_per_simd * model::SIMDS, // MaxBlocksPerMultiProcessor
        26..=28 => model::MAX_BLOCK,               // MaxBlockDim
        29..=31 => model::MAX_GRID,                // MaxGridDim
        55 | 56 => model::MAX_BLOCK,               // MaxThreadsDim, MaxThreadsPerBlock
        57 => model.threads_per_unit(),            // MaxThreadsPerMultiProcessor
        58 => i32::MAX as u32,                     // MaxPitch
        59 => model.memory_bus_bits,               // MemoryBusWidth
        60 => model.memory_clock_khz,              // MemoryClockRate
        62 => 0,                                   // MultiGpuBoardGroupID
        63 | 10015 => model.compute_units,         // MultiprocessorCount, PhysicalMultiProcessorCount
        65 | 66 => 0,                              // PageableMemoryAccess, …UsesHostPageTables
        67 => pci(device).1.unsigned_abs(),        // PciBusId
        68 => 0,                                   // PciDeviceId
        69 => pci(device).0.unsigned_abs(),        // PciDomainID
        70 | 73 => 0,                              // PersistingL2CacheMaxSize, ReservedSharedMemPerBlock
        71 | 72 => model::REGISTERS,               // MaxRegistersPerBlock, …PerMultiprocessor
        74..=76 | 10002 => model::LDS,             // MaxSharedMemoryPerBlock, …Optin, …PerMultiprocessor
        77 => 2,                                   // SingleToDoublePrecisionPerfRatio
        78 => 1,                                   // StreamPrioritiesSupported
        79 | 81 | 82 => TEXTURE_ALIGNMENT,         // SurfaceAlignment, TextureAlignment, TexturePitchAlignment
        80 => 0,                                   // TccDriver
        83 => CONSTANT_MEMORY,                     // TotalConstantMemory
        85 => 1,                                   // UnifiedAddressing
        87 => model.wave_size,                     // WarpSize
        88 | 89 => 0,                              // MemoryPoolsSupported, VirtualMemoryManagementSupported
        10011 => 1,                                // IsLargeBar
        10012 => 0,                                // AsicRevision
        10013 | 10014 => 0,                        // CanUseStreamWaitValue, ImageSupport
        10016 => 1,                                // FineGrainSupport
        10017 => 100_000,                          // WallClockRate
        10018 => {
            if device.arch == Arch::Gfx942 {
                8
            } else {
                1
            }
        } // NumberOfXccs
        _ => return None,
    })
}

pub(super) fn attribute(out: Out<c_int>, number: c_int, device: c_int) -> Status {
    let value = attribute_of(runtime()?.device(device)?, number).ok_or(HipError::INVALID_VALUE)?;
    out.put(c_int::try_from(value).unwrap_or(c_int::MAX))
}

/// A struct that is written field by field.
struct Fields<'a>(&'a mut [u8]);

impl Fields<'_> {
    fn bytes(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn text(&mut self, at: usize, text: &str) {
        self.bytes(at, &text.as_bytes()[..text.len().min(255)]);
    }

    /// Writes consecutive `int`s.
    fn ints(&mut self, at: usize, values: &[u32]) {
        for (index, value) in values.iter().enumerate() {
            self.bytes(at + 4 * index, &value.to_le_bytes());
        }
    }

    fn size(&mut self, at: usize, value: u64) {
        self.bytes(at, &value.to_le_bytes());
    }
}

/// `hipDeviceArch_t`, a bit for each feature in the header's order: all atomics, doubles, votes, ballots and shuffles; system fences; 3D
/// grids.
const FEATURES: u32 = 0x7FF | 1 << 12 | 1 << 15;

/// Writes the layout of ROCm 5.
fn old_layout(device: &Device, bytes: &mut [u8]) {
    let (model, (major, minor), (domain, bus)) = (device.model, capability(device.arch), pci(device));
    let mut f = Fields(bytes);
    f.text(0, model.name);
    f.size(256, device.total);
    f.size(264, u64::from(model::LDS));
    f.ints(272, &[model::REGISTERS, model.wave_size, model::MAX_BLOCK]);
    f.ints(284, &[model::MAX_BLOCK; 3]);
    f.ints(296, &[model::MAX_GRID; 3]);
    f.ints(308, &[model.clock_khz, model.memory_clock_khz, model.memory_bus_bits]);
    f.size(320, u64::from(CONSTANT_MEMORY));
    f.ints(328, &[major, minor, model.compute_units, model.l2, model.threads_per_unit(), 0, model.clock_khz, FEATURES, 1]);
    f.ints(364, &[domain.unsigned_abs(), bus.unsigned_abs(), 0]);
    f.size(376, u64::from(model::LDS));
    f.ints(384, &[0, 1, 100 * major + 10 * minor]);
    f.text(396, &device.arch.target_id());
    // integrated, cooperativeLaunch, cooperativeMultiDeviceLaunch.
    f.ints(652, &[0, 1, 0]);
    f.size(712, u64::from(i32::MAX as u32));
    f.size(720, u64::from(TEXTURE_ALIGNMENT));
    f.size(728, u64::from(TEXTURE_ALIGNMENT));
    f.ints(736, &[0, 1, 0]);
    // isLargeBar, asicRevision, managed memory (three members), pageable memory (two).
    f.ints(764, &[1, 0, 1, 1, 1, 0, 0]);
}

/// Writes the layout of ROCm 6 and later.
fn new_layout(device: &Device, bytes: &mut [u8]) {
    let (model, (major, minor), (domain, bus)) = (device.model, capability(device.arch), pci(device));
    let mut f = Fields(bytes);
    f.text(0, model.name);
    f.bytes(256, &uuid_digits(device));
    f.size(288, device.total);
    f.size(296, u64::from(model::LDS));
    f.ints(304, &[model::REGISTERS, model.wave_size]);
    f.size(312, u64::from(i32::MAX as u32));
    f.ints(320, &[model::MAX_BLOCK; 4]);
    f.ints(336, &[model::MAX_GRID; 3]);
    f.ints(348, &[model.clock_khz]);
    f.size(352, u64::from(CONSTANT_MEMORY));
    f.ints(360, &[major, minor]);
    f.size(368, u64::from(TEXTURE_ALIGNMENT));
    f.size(376, u64::from(TEXTURE_ALIGNMENT));
    // deviceOverlap, multiProcessorCount, kernelExecTimeoutEnabled, integrated, canMapHostMemory, computeMode.
    f.ints(384, &[1, model.compute_units, 0, 0, 1, 0]);
    f.size(568, u64::from(TEXTURE_ALIGNMENT));
    // concurrentKernels, ECCEnabled, PCI ids, tccDriver, asyncEngineCount, unifiedAddressing, memory clock and bus, l2CacheSize.
    f.ints(576, &[1, 1, bus.unsigned_abs(), 0, domain.unsigned_abs(), 0, 1, 1, model.memory_clock_khz, model.memory_bus_bits, model.l2, 0]);
    f.ints(624, &[model.threads_per_unit(), 1, 1, 1]);
    f.size(640, u64::from(model::LDS));
    // regsPerMultiprocessor, managedMemory, isMultiGpuBoard and its group, native atomics, f32:f64 ratio, pageable and concurrent managed
    // access, preemption, registered memory, cooperative launches.
    f.ints(648, &[model::REGISTERS, 1, 0, 0, 1, 2, 0, 1, 0, 1, 1, 0]);
    f.size(696, u64::from(model::LDS));
    f.ints(704, &[0, 1, model.waves_per_simd * model::SIMDS, 0]);
    f.ints(728, &[1]);
    f.text(1160, &device.arch.target_id());
    f.size(1416, u64::from(model::LDS));
    f.ints(1424, &[model.clock_khz, FEATURES]);
    f.ints(1464, &[1, 0]);
}

/// # Safety
/// `out` must have room for the `hipDeviceProp_t` of this layout, unless it is null.
unsafe fn put<const BYTES: usize>(out: &Out<c_void>, device: c_int, layout: fn(&Device, &mut [u8])) -> Status {
    let device = runtime()?.device(device)?;
    if out.is_null() {
        return Err(HipError::INVALID_VALUE);
    }
    let mut bytes = [0; BYTES];
    layout(device, &mut bytes);
    // SAFETY: the caller's promise: the struct of this layout has `BYTES` bytes.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), out.raw().cast(), BYTES) };
    Ok(())
}

/// # Safety
/// `out` must have room for the `hipDeviceProp_t` of this layout, unless it is null.
pub(super) unsafe fn r0600(out: Out<c_void>, device: c_int) -> Status {
    // SAFETY: the caller's promise.
    unsafe { put::<R0600_BYTES>(&out, device, new_layout) }
}

/// # Safety
/// `out` must have room for the `hipDeviceProp_t` of this layout, unless it is null.
pub(super) unsafe fn r0000(out: Out<c_void>, device: c_int) -> Status {
    // SAFETY: the caller's promise.
    unsafe { put::<R0000_BYTES>(&out, device, old_layout) }
}
