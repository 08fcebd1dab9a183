//! Dispatch packets of a queue: launches that are checked as hardware checks them, instead of strictly as [`Launch`](super::Launch) is.

use std::sync::Arc;

use super::dispatch::{Addresses, Dispatch, MAX_LDS, MAX_SCRATCH, MAX_WORKGROUP_SIZE, check_entry};
use super::gws::Gws;
use super::hostcall::Hostcall;
use super::{PRIVATE_APERTURE, SHARED_APERTURE, scheduler};
use crate::code_object::{Kernel, LoadedCodeObject};
use crate::fault::Fault;
use crate::memory::Memory;

/// Compute units allocate LDS in these units, and accesses within the last one succeed.
const LDS_GRANULE: u32 = 512;

/// A kernel dispatch packet of a queue whose owner wrote the whole argument block, hidden arguments included.
///
/// What code compiled for hardware may rely on is allowed, and differs from [`Launch`](super::Launch):
/// * Workgroups may be larger than the kernel's metadata states.
/// * The argument block is read where it is, also past the arguments that the metadata states.
/// * LDS instructions that read outside the workgroup's LDS return 0, and those that write there have no effect.
/// * The grid counts workitems, so the last workgroup of each dimension may be partial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// Address of the packet's 64 bytes, which the kernel may read.
    pub address: u64,
    /// Address of the `amd_queue_t`, which the kernel may read.
    pub queue: u64,
    /// Address of the argument block.
    pub kernarg: u64,
    /// Workitems in each dimension.
    pub grid: [u32; 3],
    /// Workitems of a full workgroup in each dimension.
    pub block: [u32; 3],
    /// Bytes of LDS of each workgroup, the kernel's own included.
    pub lds: u32,
    /// Bytes of scratch of each workitem; the kernel's own are the minimum.
    pub scratch: u32,
    /// Whether workgroups may synchronize with each other: all of them are kept resident.
    pub cooperative: bool,
}

impl Packet {
    /// Returns the upper halves of the flat addresses where LDS and scratch begin, as `amd_queue_t` and hidden arguments state them.
    pub fn apertures() -> (u32, u32) {
        ((SHARED_APERTURE >> 32) as u32, (PRIVATE_APERTURE >> 32) as u32)
    }
}

impl<'a> Dispatch<'a> {
    /// Checks a packet.
    pub fn from_packet(
        code_object: &'a LoadedCodeObject,
        kernel: &'a Kernel,
        packet: &Packet,
        memory: &'a Arc<Memory>,
    ) -> Result<Dispatch<'a>, Fault> {
        let invalid = |reason: String| Fault::InvalidLaunch { kernel: kernel.name.clone(), reason };
        let workitems = packet.block.iter().fold(1u64, |product, n| product.saturating_mul(u64::from(*n)));
        if workitems == 0 || packet.grid.contains(&0) {
            return Err(invalid(format!("a grid of {:?} workitems with workgroups of {:?} is empty", packet.grid, packet.block)));
        }
        if workitems > u64::from(MAX_WORKGROUP_SIZE) {
            return Err(invalid(format!("{workitems} workitems per workgroup; the hardware supports at most {MAX_WORKGROUP_SIZE}")));
        }
        let lds = packet.lds.max(kernel.descriptor.group_segment_fixed_size).checked_next_multiple_of(LDS_GRANULE);
        let lds = lds
            .filter(|lds| *lds <= MAX_LDS)
            .ok_or_else(|| invalid(format!("{} bytes of LDS per workgroup; at most {MAX_LDS} are available", packet.lds)))?;
        let scratch = packet.scratch.max(kernel.descriptor.private_segment_fixed_size);
        if scratch > MAX_SCRATCH {
            return Err(invalid(format!("{scratch} bytes of scratch per workitem; at most {MAX_SCRATCH} are available")));
        }
        let mut grid = [0; 3];
        for axis in 0..3 {
            grid[axis] = packet.grid[axis].div_ceil(packet.block[axis]);
        }
        let workgroups = grid.iter().try_fold(1u64, |product, n| product.checked_mul(u64::from(*n)));
        let workgroups = workgroups.ok_or_else(|| invalid(format!("a grid of {grid:?} workgroups is too large")))?;
        let entry = check_entry(code_object, kernel)?;
        let threads = scheduler::plan_threads(workgroups, kernel, workitems, packet.cooperative)?.threads;
        Ok(Dispatch {
            code_object,
            kernel,
            memory,
            print: &|_| {},
            grid,
            block: packet.block,
            workitems: packet.grid,
            lds,
            scratch,
            cooperative: packet.cooperative,
            hardware: true,
            threads,
            hostcall: Hostcall::absent(memory),
            gws: Gws::default(),
            entry,
            addresses: Addresses { packet: packet.address, queue: packet.queue, kernarg: packet.kernarg },
            _launch_memory: None,
            _execution_lock: memory.lock_for_execution(),
        })
    }
}
