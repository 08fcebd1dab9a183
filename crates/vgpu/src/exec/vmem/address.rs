//! The addresses of vector memory instructions: computing, checking and accessing them.

use crate::exec::decoded::Step;
use crate::exec::resource::BufferResource;
use crate::exec::wave::{LANES, Lanes, Lanes64, Wave};
use crate::exec::{Env, PRIVATE_APERTURE, SHARED_APERTURE};
use crate::isa::{Format, flag, operand};

/// The lanes' addresses.
pub(super) enum LaneAddresses {
    /// Host addresses.
    Memory(Lanes64),
    /// Offsets in each lane's scratch.
    Scratch(Lanes),
    /// Flat addresses: memory, LDS or scratch, lane by lane.
    Mixed(Lanes64),
}

/// Returns the lanes' addresses, and the lanes that take part (lanes outside a buffer do not).
#[inline(always)]
pub(super) fn lane_addresses(w: &Wave, s: &Step) -> (LaneAddresses, u64) {
    let inst = &s.inst;
    let wide = |w: &Wave| {
        let (low, high) = (w.vgpr(inst.src[0]), w.vgpr(inst.src[0] + 1));
        let mut out = Lanes64([0; LANES]);
        for lane in 0..LANES {
            out.0[lane] = (u64::from(low.0[lane]) | u64::from(high.0[lane]) << 32).wrapping_add_signed(i64::from(inst.imm));
        }
        out
    };
    match inst.desc.format {
        Format::GLOBAL if inst.base != operand::NONE => {
            let base = w.scalar64(inst.base).wrapping_add_signed(i64::from(inst.imm));
            let offset = w.vgpr(inst.src[0]);
            let mut out = Lanes64([0; LANES]);
            for lane in 0..LANES {
                out.0[lane] = base.wrapping_add(u64::from(offset.0[lane]));
            }
            (LaneAddresses::Memory(out), w.exec)
        }
        Format::GLOBAL => (LaneAddresses::Memory(wide(w)), w.exec),
        Format::SCRATCH => {
            let base = if inst.base == operand::NONE { 0 } else { w.scalar(inst.base) }.wrapping_add(inst.imm as u32);
            let mut out = Lanes([base; LANES]);
            if inst.flags & flag::VADDR != 0 {
                let offset = w.vgpr(inst.src[0]);
                for lane in 0..LANES {
                    out.0[lane] = base.wrapping_add(offset.0[lane]);
                }
            }
            (LaneAddresses::Scratch(out), w.exec)
        }
        Format::MUBUF => buffer(w, s),
        _ => {
            let out = wide(w);
            // Only addresses above every host address can be in an aperture.
            let (mut special, mut private) = (0, u64::MAX);
            for lane in 0..LANES {
                let active = 0u64.wrapping_sub(w.exec >> lane & 1);
                special |= out.0[lane] & active;
                private &= u64::from(out.0[lane] >> 32 == PRIVATE_APERTURE >> 32) | !active;
            }
            let target = if special >> 48 == 0 {
                LaneAddresses::Memory(out)
            } else if private & 1 != 0 {
                LaneAddresses::Scratch(Lanes(out.0.map(|address| address as u32)))
            } else {
                LaneAddresses::Mixed(out)
            };
            (target, w.exec)
        }
    }
}

/// Returns the addresses of a buffer instruction, and the active lanes within the buffer.
#[inline(always)]
fn buffer(w: &Wave, s: &Step) -> (LaneAddresses, u64) {
    let inst = &s.inst;
    let resource = BufferResource::read(w, inst.base);
    let soffset = match inst.offset {
        number @ operand::INLINE..=operand::INLINE_INT_MAX => u64::from(number - operand::INLINE),
        number => u64::from(w.scalar(number)),
    };
    let (offen, idxen) = (inst.flags & flag::OFFEN != 0, inst.flags & flag::IDXEN != 0);
    let (first, second) = (w.vgpr(inst.src[0]), w.vgpr(inst.src[0] + 1));
    let mut out = Lanes64([0; LANES]);
    let mut exec = w.exec;
    for lane in 0..LANES {
        let mut index = if idxen { u64::from(first.0[lane]) } else { 0 };
        let mut offset = inst.imm as u64;
        if offen {
            offset += u64::from(if idxen { second.0[lane] } else { first.0[lane] });
        }
        if resource.add_tid {
            index += lane as u64;
        }
        let within = if resource.swizzle {
            // Compilers rely on the wrap: scratch, which is not bounded, is addressed from negative offsets.
            let offset = offset & u64::from(u32::MAX);
            // The dwords of neighboring indices are adjacent.
            let (group, at) = (index >> resource.index_stride_log2, index & ((1 << resource.index_stride_log2) - 1));
            ((group * resource.stride + (offset & !3)) << resource.index_stride_log2) + at * 4 + (offset & 3)
        } else {
            index * resource.stride + offset
        };
        let outside = match (resource.swizzle || resource.add_tid, resource.stride) {
            (true, _) => false,
            (false, 0) => offset + soffset >= resource.num_records,
            (false, stride) => index >= resource.num_records || idxen && offset >= stride,
        };
        if outside {
            exec &= !(1 << lane);
        }
        out.0[lane] = resource.base.wrapping_add(soffset).wrapping_add(within);
    }
    (LaneAddresses::Memory(out), exec)
}

/// Checks that all active lanes access memory they may access.
#[inline(always)]
pub(super) fn check_range(w: &mut Wave, s: &Step, e: &mut Env, addresses: &Lanes64, exec: u64, bytes: u32, write: bool) -> bool {
    let (mut min, mut max) = (u64::MAX, 0);
    for lane in 0..LANES {
        // All bits set for an active lane, none for an inactive one.
        let active = 0u64.wrapping_sub(exec >> lane & 1);
        min = min.min(addresses.0[lane] | !active);
        max = max.max(addresses.0[lane] & active);
    }
    let end = max.saturating_add(u64::from(bytes));
    if w.recent_ranges.iter().any(|&(start, stop, writable)| min >= start && end <= stop && (writable || !write)) {
        return true;
    }
    check_lanes(w, s, e, addresses, exec, (min, end), bytes, write)
}

/// The slow path of [`check_range`]: looks up one allocation for all lanes, then one for each lane.
#[allow(clippy::too_many_arguments)]
#[inline(never)]
fn check_lanes(
    w: &mut Wave,
    s: &Step,
    e: &mut Env,
    addresses: &Lanes64,
    exec: u64,
    (min, end): (u64, u64),
    bytes: u32,
    write: bool,
) -> bool {
    if let Ok(all) = u32::try_from(end.saturating_sub(min))
        && e.can_access(w, min, all, write)
    {
        return true;
    }
    for lane in 0..LANES {
        if exec >> lane & 1 != 0 && !e.can_access(w, addresses.0[lane], bytes, write) {
            e.memory_fault(w, s, lane, addresses.0[lane], bytes, write);
            return false;
        }
    }
    true
}

/// Where a lane's access goes: a flat address may be in any of three memories.
pub(super) enum Location {
    Memory(u64),
    Shared(usize),
    Scratch(u32),
}

/// Resolves and checks a lane's access.
pub(super) fn locate(
    w: &mut Wave,
    s: &Step,
    e: &mut Env,
    target: &LaneAddresses,
    lane: usize,
    bytes: u32,
    write: bool,
) -> Option<Location> {
    let scratch = |w: &mut Wave, e: &mut Env, offset: u32| {
        if offset.checked_add(bytes).is_none_or(|end| end > w.scratch_size) {
            e.scratch_fault(w, s, lane, offset, bytes);
            return None;
        }
        Some(Location::Scratch(offset))
    };
    match target {
        LaneAddresses::Scratch(offsets) => scratch(w, e, offsets.0[lane]),
        LaneAddresses::Memory(addresses) | LaneAddresses::Mixed(addresses) => {
            let address = addresses.0[lane];
            match address >> 48 << 48 {
                SHARED_APERTURE if address >> 32 == SHARED_APERTURE >> 32 => {
                    let at = address & 0xffff_ffff;
                    if at + u64::from(bytes) > u64::from(e.lds_size) {
                        e.lds_fault(w, s, lane, at, bytes);
                        return None;
                    }
                    Some(Location::Shared(at as usize))
                }
                PRIVATE_APERTURE if address >> 32 == PRIVATE_APERTURE >> 32 => scratch(w, e, address as u32),
                _ if e.can_access(w, address, bytes, write) => Some(Location::Memory(address)),
                _ => {
                    e.memory_fault(w, s, lane, address, bytes, write);
                    None
                }
            }
        }
    }
}

/// Reads up to 16 bytes of a lane.
///
/// # Safety
/// `location` must come from [`locate`], for this wavefront, lane and number of bytes.
pub(super) unsafe fn read(w: &Wave, e: &Env, lane: usize, location: &Location, bytes: u32) -> u128 {
    let mut out = [0u8; 16];
    match *location {
        // SAFETY: the caller's promise; no allocation is removed while a kernel runs.
        Location::Memory(address) => unsafe { std::ptr::copy_nonoverlapping(address as *const u8, out.as_mut_ptr(), bytes as usize) },
        Location::Shared(at) => out[..bytes as usize].copy_from_slice(&e.lds[at..at + bytes as usize]),
        Location::Scratch(offset) => {
            for n in 0..bytes {
                let at = offset + n;
                let word = w.scratch[(at / 4) as usize * w.lanes() + lane];
                out[n as usize] = (word >> (8 * (at % 4))) as u8;
            }
        }
    }
    u128::from_le_bytes(out)
}

/// Writes up to 16 bytes of a lane.
///
/// # Safety
/// `location` must come from [`locate`] with `write` set, for this wavefront, lane and number of bytes.
pub(super) unsafe fn write(w: &mut Wave, e: &mut Env, lane: usize, location: &Location, bytes: u32, value: u128) {
    let value = value.to_le_bytes();
    match *location {
        // SAFETY: the caller's promise; no allocation is removed while a kernel runs.
        Location::Memory(address) => unsafe { std::ptr::copy_nonoverlapping(value.as_ptr(), address as *mut u8, bytes as usize) },
        Location::Shared(at) => e.lds[at..at + bytes as usize].copy_from_slice(&value[..bytes as usize]),
        Location::Scratch(offset) => {
            for n in 0..bytes {
                let (at, shift) = ((offset + n) / 4, 8 * ((offset + n) % 4));
                let lanes = w.lanes();
                let word = &mut w.scratch[at as usize * lanes + lane];
                *word = *word & !(0xff << shift) | u32::from(value[n as usize]) << shift;
            }
        }
    }
}

/// Returns the host addresses, checked, when all lanes access plain memory.
#[inline(always)]
pub(super) fn checked_memory(
    w: &mut Wave,
    s: &Step,
    e: &mut Env,
    target: &LaneAddresses,
    exec: u64,
    bytes: u32,
    write: bool,
) -> Result<Option<Lanes64>, ()> {
    match target {
        LaneAddresses::Memory(addresses) => {
            if check_range(w, s, e, addresses, exec, bytes, write) {
                Ok(Some(*addresses))
            } else {
                Err(())
            }
        }
        _ => Ok(None),
    }
}
