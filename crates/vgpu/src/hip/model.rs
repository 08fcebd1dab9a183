//! The GPU models that the virtual devices stand for.

use crate::arch::Arch;

/// A GPU model.
#[derive(Debug)]
pub struct GpuModel {
    /// The name that the device reports.
    pub name: &'static str,
    /// HIP's multiprocessors: compute units, on RDNA pairs of them (WGPs).
    pub compute_units: u32,
    /// Lanes of a wavefront of the default size.
    pub wave_size: u32,
    /// Bytes of memory.
    pub memory: u64,
    /// Clock in kHz.
    pub clock_khz: u32,
    /// Memory clock in kHz.
    pub memory_clock_khz: u32,
    /// Width of the memory bus in bits.
    pub memory_bus_bits: u32,
    /// Bytes of L2 cache.
    pub l2: u32,
    /// Wavefronts per SIMD. A multiprocessor has four SIMDs.
    pub waves_per_simd: u32,
    /// VGPRs per lane of a SIMD, shared by its wavefronts.
    pub vector_registers: u32,
    /// Allocation granule of VGPRs.
    pub vector_granule: u32,
}

/// SIMDs of a multiprocessor.
pub const SIMDS: u32 = 4;
/// Bytes of LDS of a workgroup.
pub const LDS: u32 = 64 << 10;
/// Allocation granule of LDS.
pub const LDS_GRANULE: u32 = 512;
/// SGPRs of a SIMD, shared by its wavefronts.
pub const SCALAR_REGISTERS: u32 = 800;
/// Allocation granule of SGPRs.
pub const SCALAR_GRANULE: u32 = 16;
/// Registers of a multiprocessor, as HIP counts them.
pub const REGISTERS: u32 = 65_536;
/// The most workitems of a workgroup.
pub const MAX_BLOCK: u32 = 1024;
/// The most workgroups in a dimension.
pub const MAX_GRID: u32 = i32::MAX as u32;

const MI50: GpuModel = GpuModel {
    name: "Virtual Instinct MI50",
    compute_units: 60,
    wave_size: 64,
    memory: 16 << 30,
    clock_khz: 1_725_000,
    memory_clock_khz: 1_000_000,
    memory_bus_bits: 4096,
    l2: 4 << 20,
    waves_per_simd: 10,
    vector_registers: 256,
    vector_granule: 4,
};

const MI100: GpuModel = GpuModel {
    name: "Virtual Instinct MI100",
    compute_units: 120,
    wave_size: 64,
    memory: 32 << 30,
    clock_khz: 1_502_000,
    memory_clock_khz: 1_200_000,
    memory_bus_bits: 4096,
    l2: 8 << 20,
    waves_per_simd: 10,
    vector_registers: 256,
    vector_granule: 4,
};

const MI210: GpuModel = GpuModel {
    name: "Virtual Instinct MI210",
    compute_units: 104,
    wave_size: 64,
    memory: 64 << 30,
    clock_khz: 1_700_000,
    memory_clock_khz: 1_600_000,
    memory_bus_bits: 4096,
    l2: 8 << 20,
    waves_per_simd: 8,
    vector_registers: 512,
    vector_granule: 8,
};

const MI300X: GpuModel = GpuModel {
    name: "Virtual Instinct MI300X",
    compute_units: 304,
    wave_size: 64,
    memory: 192 << 30,
    clock_khz: 2_100_000,
    memory_clock_khz: 1_300_000,
    memory_bus_bits: 8192,
    l2: 4 << 20,
    waves_per_simd: 8,
    vector_registers: 512,
    vector_granule: 8,
};

const RX5700XT: GpuModel = GpuModel {
    name: "Virtual Radeon RX 5700 XT",
    compute_units: 20,
    wave_size: 32,
    memory: 8 << 30,
    clock_khz: 1_905_000,
    memory_clock_khz: 875_000,
    memory_bus_bits: 256,
    l2: 4 << 20,
    waves_per_simd: 20,
    vector_registers: 1024,
    vector_granule: 8,
};

const RX6900XT: GpuModel = GpuModel {
    name: "Virtual Radeon RX 6900 XT",
    compute_units: 40,
    wave_size: 32,
    memory: 16 << 30,
    clock_khz: 2_250_000,
    memory_clock_khz: 1_000_000,
    memory_bus_bits: 256,
    l2: 4 << 20,
    waves_per_simd: 16,
    vector_registers: 1024,
    vector_granule: 16,
};

const RX7900XTX: GpuModel = GpuModel {
    name: "Virtual Radeon RX 7900 XTX",
    compute_units: 48,
    wave_size: 32,
    memory: 24 << 30,
    clock_khz: 2_500_000,
    memory_clock_khz: 1_250_000,
    memory_bus_bits: 384,
    l2: 6 << 20,
    waves_per_simd: 16,
    vector_registers: 1536,
    vector_granule: 24,
};

const RX9070XT: GpuModel = GpuModel {
    name: "Virtual Radeon RX 9070 XT",
    compute_units: 32,
    wave_size: 32,
    memory: 16 << 30,
    clock_khz: 2_970_000,
    memory_clock_khz: 1_258_000,
    memory_bus_bits: 256,
    l2: 8 << 20,
    waves_per_simd: 16,
    vector_registers: 1536,
    vector_granule: 24,
};

impl GpuModel {
    /// Returns the model that an architecture's virtual device stands for.
    pub fn of(arch: Arch) -> &'static GpuModel {
        match arch {
            Arch::Gfx906 => &MI50,
            Arch::Gfx908 => &MI100,
            Arch::Gfx90a => &MI210,
            Arch::Gfx942 => &MI300X,
            Arch::Gfx1010 => &RX5700XT,
            Arch::Gfx1030 => &RX6900XT,
            Arch::Gfx1100 => &RX7900XTX,
            Arch::Gfx1201 => &RX9070XT,
        }
    }

    /// Returns the threads that a multiprocessor holds.
    pub fn threads_per_unit(&self) -> u32 {
        self.waves_per_simd * SIMDS * self.wave_size
    }
}

/// Returns the memory of a device: the model's, but at most three quarters of the host's.
pub fn default_memory(model: &GpuModel) -> u64 {
    let host = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()
    });
    let given = host.map_or(4 << 30, |kib| kib.saturating_mul(1024) / 4 * 3);
    // Round down to whole mebibytes.
    model.memory.min(given) & !((1 << 20) - 1)
}
