//! Atomics, faster than the interpreter's functions: one check for all lanes, and one change of memory if all lanes have the same address.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::lanes::Vector;
use super::memory::{Place, lds_place, memory_place};
use crate::exec::Env;
use crate::exec::atomic::Rmw;
use crate::exec::decoded::Step;
use crate::exec::lds::{self, Atomic};
use crate::exec::vmem::{atomic_rmw, operation};
use crate::exec::wave::{LANES, Lanes, Wave};
use crate::isa::flag;

/// The operands of a lane: the new value and the one to compare with.
#[inline(always)]
fn operands(w: &Wave, numbers: [u16; 2], bytes: u32, lane: usize) -> (u64, u64) {
    let value = |number: u16| {
        let high = if bytes == 8 { w.vgpr(number + 1).0[lane] } else { 0 };
        u64::from(w.vgpr(number).0[lane]) | u64::from(high) << 32
    };
    (value(numbers[0]), value(numbers[1]))
}

fn active(exec: u64) -> impl Iterator<Item = usize> {
    (0..LANES).filter(move |lane| exec >> lane & 1 != 0)
}

/// The old values of all lanes.
struct Old([Lanes; 2]);

impl Old {
    #[inline(always)]
    fn set(&mut self, lane: usize, value: u64) {
        self.0[0].0[lane] = value as u32;
        self.0[1].0[lane] = (value >> 32) as u32;
    }

    #[inline(always)]
    fn write(&self, w: &mut Wave, number: u16, bytes: u32) {
        w.write_vgpr(number, &self.0[0]);
        if bytes == 8 {
            w.write_vgpr(number + 1, &self.0[1]);
        }
    }
}

/// Atomics of GLOBAL and FLAT. Unaligned ones are left to the interpreter's function, which reports them.
#[inline(always)]
pub fn global<S: Vector>(w: &mut Wave, s: &Step, e: &mut Env<'_>) -> Option<()> {
    let (op, bytes) = operation(s)?;
    let place = memory_place::<S>(w, s, e, bytes as usize, true)?;
    let data = s.inst.src[1];
    let numbers = [data, data + (bytes / 4) as u16];
    let first = place.offsets.0[w.first_lane()];
    let (mut unaligned, mut differ) = (0, 0);
    for lane in 0..LANES {
        let offset = place.offsets.0[lane];
        unaligned |= (place.base as u32).wrapping_add(offset) & (bytes - 1) & w.mask.0[lane];
        differ |= (offset ^ first) & w.mask.0[lane];
    }
    if unaligned != 0 {
        return None;
    }
    let mut old = Old([Lanes([0; LANES]); 2]);
    if differ == 0 {
        let address = place.base as u64 + u64::from(first);
        // SAFETY: `memory_place` checked the range, the alignment was checked above, and no allocation is removed while a kernel runs.
        unsafe { all_at_once(w, &mut old, address, op, bytes, numbers) };
    } else {
        for lane in active(place.exec) {
            let (new, compare) = operands(w, numbers, bytes, lane);
            let address = place.base as u64 + u64::from(place.offsets.0[lane]);
            // SAFETY: as above.
            old.set(lane, unsafe { atomic_rmw(address, bytes, |old| op(old, new, compare)) });
        }
    }
    if s.inst.flags & flag::GLC != 0 {
        old.write(w, s.inst.dst, bytes);
    }
    Some(())
}

/// Applies the operations of all active lanes, in order, to one value.
///
/// # Safety
/// The value must be readable and writable, and aligned.
#[inline(always)]
unsafe fn all_at_once(w: &Wave, old: &mut Old, address: u64, op: Rmw, bytes: u32, numbers: [u16; 2]) {
    let mut change = |before: u64| {
        let mut value = before;
        for lane in active(w.exec) {
            let (new, compare) = operands(w, numbers, bytes, lane);
            old.set(lane, value);
            value = op(value, new, compare);
            if bytes == 4 {
                value &= u64::from(u32::MAX);
            }
        }
        value
    };
    if bytes == 8 {
        // SAFETY: the caller's promise.
        let cell = unsafe { AtomicU64::from_ptr(address as *mut u64) };
        let mut before = cell.load(Ordering::Relaxed);
        while let Err(now) = cell.compare_exchange_weak(before, change(before), Ordering::AcqRel, Ordering::Acquire) {
            before = now;
        }
    } else {
        // SAFETY: the caller's promise.
        let cell = unsafe { AtomicU32::from_ptr(address as *mut u32) };
        let mut before = cell.load(Ordering::Relaxed);
        while let Err(now) = cell.compare_exchange_weak(before, change(before.into()) as u32, Ordering::AcqRel, Ordering::Acquire) {
            before = now;
        }
    }
}

/// Atomics of LDS, which no other thread accesses.
#[inline(always)]
pub fn local<S: Vector>(w: &mut Wave, s: &Step, e: &mut Env<'_>) -> Option<()> {
    let Atomic { op, bytes, returns, compares } = lds::atomic_of(s)?;
    let offset = s.inst.imm as u32;
    let Place { base, offsets, exec } = lds_place::<S>(w, s, e, offset + bytes)?;
    let numbers = if compares { [s.inst.src[2], s.inst.src[1]] } else { [s.inst.src[1], s.inst.src[2]] };
    let mut old = Old([Lanes([0; LANES]); 2]);
    for lane in active(exec) {
        let (new, compare) = operands(w, numbers, bytes, lane);
        // SAFETY: `lds_place` checked the addresses.
        unsafe {
            let at = base.add(offsets.0[lane] as usize + offset as usize);
            if bytes == 8 {
                let before = at.cast::<u64>().read_unaligned();
                old.set(lane, before);
                at.cast::<u64>().write_unaligned(op(before, new, compare));
            } else {
                let before = at.cast::<u32>().read_unaligned().into();
                old.set(lane, before);
                at.cast::<u32>().write_unaligned(op(before, new, compare) as u32);
            }
        }
    }
    if returns {
        old.write(w, s.inst.dst, bytes);
    }
    Some(())
}
