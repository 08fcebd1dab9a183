//! Scalar memory instructions.

use super::decoded::{Handler, Step};
use super::resource::BufferResource;
use super::vmem::{atomic_op, atomic_rmw};
use super::wave::Wave;
use super::{Env, Outcome};
use crate::isa::{Field, flag, operand};

/// Returns the address, and the bytes from there on that are within the buffer's bounds.
fn address(w: &Wave, s: &Step) -> (u64, u64) {
    let inst = &s.inst;
    let register = if inst.offset == operand::NONE { 0 } else { u64::from(w.scalar(inst.offset)) };
    let offset = register.wrapping_add_signed(i64::from(inst.imm));
    if inst.desc.registers(Field::Base) == 4 {
        let resource = BufferResource::read(w, inst.base);
        return (resource.base.wrapping_add(offset) & !3, resource.bytes().saturating_sub(offset));
    }
    (w.scalar64(inst.base).wrapping_add(offset) & !3, u64::MAX)
}

fn load(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    let (address, room) = address(w, s);
    let words = u32::from(s.inst.desc.registers(Field::Dst));
    for n in 0..words {
        let at = address + 4 * u64::from(n);
        let value = if 4 * u64::from(n) + 4 > room {
            0
        } else if e.can_access(w, at, 4, false) {
            // SAFETY: the range was checked just now, and no allocation is removed while a kernel runs.
            unsafe { (at as *const u32).read_unaligned() }
        } else {
            e.memory_fault(w, s, 0, at, 4, false);
            return Outcome::Fault;
        };
        w.set_scalar(s.inst.dst + n as u16, value);
    }
    Outcome::Continue
}

fn store(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    let (address, room) = address(w, s);
    for n in 0..u32::from(s.inst.desc.registers(Field::Dst)) {
        let at = address + 4 * u64::from(n);
        if 4 * u64::from(n) + 4 > room {
            break;
        }
        if !e.can_access(w, at, 4, true) {
            e.memory_fault(w, s, 0, at, 4, true);
            return Outcome::Fault;
        }
        let value = w.scalar(s.inst.dst + n as u16);
        // SAFETY: the range was checked just now, and no allocation is removed while a kernel runs.
        unsafe { (at as *mut u32).write_unaligned(value) };
    }
    Outcome::Continue
}

fn atomic(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    let Some((op, bytes)) = atomic_op(s.inst.desc.semantics) else { return Outcome::Fault };
    let (address, room) = address(w, s);
    if u64::from(bytes) > room {
        return Outcome::Continue;
    }
    if !e.can_access(w, address, bytes, true) {
        e.memory_fault(w, s, 0, address, bytes, true);
        return Outcome::Fault;
    }
    if !address.is_multiple_of(u64::from(bytes)) {
        return e.misaligned_fault(w, s, 0, address, bytes);
    }
    let value = |w: &Wave, number: u16| if bytes == 8 { w.scalar64(number) } else { u64::from(w.scalar(number)) };
    let (new, compare) = (value(w, s.inst.dst), value(w, s.inst.dst + (bytes / 4) as u16));
    // SAFETY: range and alignment were checked above.
    let old = unsafe { atomic_rmw(address, bytes, |old| op(old, new, compare)) };
    if s.inst.flags & flag::GLC != 0 {
        if bytes == 8 {
            w.set_scalar64(s.inst.dst, old);
        } else {
            w.set_scalar(s.inst.dst, old as u32);
        }
    }
    Outcome::Continue
}

/// `s_memtime`: a cycle counter at a nominal 1 GHz.
fn time(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    let now = e.clock.elapsed().as_nanos() as u64;
    w.set_scalar64(s.inst.dst, now);
    Outcome::Continue
}

/// `s_memrealtime`: the constant 100 MHz clock.
fn real_time(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    let now = e.clock.elapsed().as_nanos() as u64 / 10;
    w.set_scalar64(s.inst.dst, now);
    Outcome::Continue
}

fn nop(_: &mut Wave, _: &Step, _: &mut Env) -> Outcome {
    Outcome::Continue
}

/// Returns the handler of the instruction called `name`.
pub fn find(name: &str) -> Option<Handler> {
    if atomic_op(name).is_some() {
        return Some(atomic);
    }
    Some(match name {
        "s_memtime" => time,
        "s_memrealtime" => real_time,
        _ if name.starts_with("s_load_dword") || name.starts_with("s_buffer_load_dword") => load,
        _ if name.starts_with("s_store_dword") || name.starts_with("s_buffer_store_dword") => store,
        _ if name.starts_with("s_dcache_") => nop,
        _ => return None,
    })
}
