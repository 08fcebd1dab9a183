//! Occupancy: how many workgroups of a kernel a compute unit holds.

use std::ffi::c_int;

use super::error::{HipError, Status};
use super::model::{self, GpuModel};
use super::module::Function;
use super::runtime::runtime;
use super::types::{Handle, Out};
use crate::arch::Arch;
use crate::code_object::Kernel;

/// Returns the lanes of a kernel's wavefronts.
fn lanes(kernel: &Kernel) -> u32 {
    kernel.descriptor.wave_size().lanes()
}

/// Returns the wavefronts of a kernel per SIMD, limited by registers.
fn waves_per_simd(model: &GpuModel, arch: Arch, kernel: &Kernel) -> u32 {
    // With a unified register file the metadata counts VGPRs and AGPRs together; otherwise each has a file of its own.
    let vector = if arch.has_unified_vgprs() { kernel.vgprs } else { kernel.vgprs.max(kernel.agprs) };
    // A wave64 of RDNA takes twice the registers of a wave32.
    let share = lanes(kernel) / model.wave_size.min(lanes(kernel));
    let (vector_registers, granule) = (model.vector_registers / share, (model.vector_granule / share).max(1));
    let by_vector = vector_registers / vector.max(1).next_multiple_of(granule);
    // RDNA has SGPRs for every wavefront.
    let scalar = kernel.sgprs.max(1).next_multiple_of(model::SCALAR_GRANULE);
    let by_scalar = if arch.is_rdna() { u32::MAX } else { model::SCALAR_REGISTERS / scalar };
    by_vector.min(by_scalar).min(model.waves_per_simd)
}

/// Returns the largest block size: all wavefronts of a workgroup must be resident together.
pub(super) fn largest_block(model: &GpuModel, arch: Arch, kernel: &Kernel) -> u32 {
    let waves = waves_per_simd(model, arch, kernel).max(1) * model::SIMDS;
    kernel.max_workgroup_size.min(model::MAX_BLOCK).min(waves * lanes(kernel))
}

/// Returns the workgroups of `threads` threads and `shared` bytes of dynamic LDS that a compute unit holds.
pub(super) fn blocks_per_unit(model: &GpuModel, arch: Arch, kernel: &Kernel, threads: u32, shared: u64) -> u32 {
    let lds = u64::from(kernel.descriptor.group_segment_fixed_size).saturating_add(shared);
    if threads == 0 || threads > largest_block(model, arch, kernel) || lds > u64::from(model::LDS) {
        return 0;
    }
    let by_waves = waves_per_simd(model, arch, kernel) * model::SIMDS / threads.div_ceil(lanes(kernel));
    let granules = (lds as u32).next_multiple_of(model::LDS_GRANULE);
    model::LDS.checked_div(granules).unwrap_or(u32::MAX).min(by_waves)
}

pub(super) fn max_active_blocks(out: Out<c_int>, function: Handle, block: c_int, shared: usize) -> Status {
    active(out, &*runtime()?.functions.get(function)?, block, shared)
}

pub(super) fn active(out: Out<c_int>, function: &Function, block: c_int, shared: usize) -> Status {
    let threads = u32::try_from(block).ok().filter(|threads| *threads > 0).ok_or(HipError::INVALID_VALUE)?;
    let blocks = blocks_per_unit(function.device.model, function.device.arch, function.kernel()?, threads, shared as u64);
    out.put(c_int::try_from(blocks).unwrap_or(c_int::MAX))
}

pub(super) fn max_active_blocks_with_flags(out: Out<c_int>, function: Handle, block: c_int, shared: usize, _flags: u32) -> Status {
    max_active_blocks(out, function, block, shared)
}

/// Returns the smallest block size with the best occupancy, and the grid that fills the device.
pub(super) fn best_block(grid: Out<c_int>, block: Out<c_int>, function: Handle, shared: usize, limit: c_int) -> Status {
    best(grid, block, &*runtime()?.functions.get(function)?, shared, limit)
}

pub(super) fn best(grid: Out<c_int>, block: Out<c_int>, function: &Function, shared: usize, limit: c_int) -> Status {
    let (model, arch, kernel) = (function.device.model, function.device.arch, function.kernel()?);
    let limit = u32::try_from(limit).ok().filter(|limit| *limit > 0).unwrap_or(u32::MAX);
    let largest = largest_block(model, arch, kernel).min(limit);
    let sizes = (1..=largest / lanes(kernel)).map(|waves| waves * lanes(kernel)).chain([largest]);
    let all = sizes.map(|threads| (threads, blocks_per_unit(model, arch, kernel, threads, shared as u64)));
    // Prefer up to four wavefronts, one for each SIMD.
    let worth =
        |(threads, blocks): &(u32, u32)| (threads * blocks, (*threads).min(model::SIMDS * lanes(kernel)), std::cmp::Reverse(*threads));
    let (threads, blocks) = all.max_by_key(worth).filter(|(_, blocks)| *blocks > 0).ok_or(HipError::INVALID_VALUE)?;
    grid.put(c_int::try_from(blocks * model.compute_units).unwrap_or(c_int::MAX))?;
    block.put(c_int::try_from(threads).unwrap_or(c_int::MAX))
}

pub(super) fn best_block_with_flags(
    grid: Out<c_int>,
    block: Out<c_int>,
    function: Handle,
    shared: usize,
    limit: c_int,
    _flags: u32,
) -> Status {
    best_block(grid, block, function, shared, limit)
}
