//! How many blocks of a kernel a compute unit holds at a time.

use std::ffi::c_int;

use super::card::{self, Card};
use super::code::{Code, Status};
use super::module::Function;
use super::runtime::runtime;
use super::types::{Handle, Out};
use crate::arch::Arch;
use crate::program::Kernel;

/// Waves of a kernel that a SIMD holds, by their registers.
fn waves_per_simd(card: &Card, arch: Arch, kernel: &Kernel) -> u32 {
    // Where there is one register file the metadata counts both kinds; else each has a file of its own.
    let vector = if arch.unified_registers() { kernel.vgprs } else { kernel.vgprs.max(kernel.agprs) };
    let by_vector = card.vector_registers / vector.max(1).next_multiple_of(card.vector_granule);
    let by_scalar = card::SCALAR_REGISTERS / kernel.sgprs.max(1).next_multiple_of(card::SCALAR_GRANULE);
    by_vector.min(by_scalar).min(card.waves_per_simd)
}

/// The largest block that it can be launched with: its waves must fit a compute unit together.
pub(super) fn largest_block(card: &Card, arch: Arch, kernel: &Kernel) -> u32 {
    let waves = waves_per_simd(card, arch, kernel).max(1) * card::SIMDS;
    kernel.max_group.min(card::MAX_BLOCK).min(waves * card::WAVE)
}

/// Blocks of `threads` threads, with `shared` bytes besides their own, that a compute unit holds.
pub(super) fn blocks_per_unit(card: &Card, arch: Arch, kernel: &Kernel, threads: u32, shared: u64) -> u32 {
    let lds = u64::from(kernel.descriptor.group_segment).saturating_add(shared);
    if threads == 0 || threads > largest_block(card, arch, kernel) || lds > u64::from(card::LDS) {
        return 0;
    }
    let by_waves = waves_per_simd(card, arch, kernel) * card::SIMDS / threads.div_ceil(card::WAVE);
    let granules = (lds as u32).next_multiple_of(card::LDS_GRANULE);
    card::LDS.checked_div(granules).unwrap_or(u32::MAX).min(by_waves)
}

pub(super) fn max_active_blocks(out: Out<c_int>, function: Handle, block: c_int, shared: usize) -> Status {
    active(out, &*runtime()?.functions.get(function)?, block, shared)
}

pub(super) fn active(out: Out<c_int>, function: &Function, block: c_int, shared: usize) -> Status {
    let threads = u32::try_from(block).ok().filter(|threads| *threads > 0).ok_or(Code::INVALID_VALUE)?;
    let blocks = blocks_per_unit(function.device.card, function.device.arch, function.kernel()?, threads, shared as u64);
    out.put(c_int::try_from(blocks).unwrap_or(c_int::MAX))
}

pub(super) fn max_active_blocks_with_flags(out: Out<c_int>, function: Handle, block: c_int, shared: usize, _flags: u32) -> Status {
    max_active_blocks(out, function, block, shared)
}

/// The smallest block that keeps the most threads on a compute unit, and the grid that fills the device with it.
pub(super) fn best_block(grid: Out<c_int>, block: Out<c_int>, function: Handle, shared: usize, limit: c_int) -> Status {
    best(grid, block, &*runtime()?.functions.get(function)?, shared, limit)
}

pub(super) fn best(grid: Out<c_int>, block: Out<c_int>, function: &Function, shared: usize, limit: c_int) -> Status {
    let (card, arch, kernel) = (function.device.card, function.device.arch, function.kernel()?);
    let limit = u32::try_from(limit).ok().filter(|limit| *limit > 0).unwrap_or(u32::MAX);
    let largest = largest_block(card, arch, kernel).min(limit);
    let sizes = (1..=largest / card::WAVE).map(|waves| waves * card::WAVE).chain([largest]);
    let all = sizes.map(|threads| (threads, blocks_per_unit(card, arch, kernel, threads, shared as u64)));
    // Blocks of several waves share their start; four waves are one for each SIMD.
    let worth = |(threads, blocks): &(u32, u32)| (threads * blocks, (*threads).min(card::SIMDS * card::WAVE), std::cmp::Reverse(*threads));
    let (threads, blocks) = all.max_by_key(worth).filter(|(_, blocks)| *blocks > 0).ok_or(Code::INVALID_VALUE)?;
    grid.put(c_int::try_from(blocks * card.compute_units).unwrap_or(c_int::MAX))?;
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
