//! Scalar memory instructions.

use super::decoded::{Handler, Step};
use super::resource::BufferResource;
use super::vmem::{atomic_op, atomic_rmw, operation};
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
        return (resource.base.wrapping_add(offset), resource.bytes().saturating_sub(offset));
    }
    (w.scalar64(inst.base).wrapping_add(offset), u64::MAX)
}

fn load(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    let (address, room) = address(w, s);
    let address = address & !3;
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
        if s.inst.dst != operand::NULL {
            w.set_scalar(s.inst.dst + n as u16, value);
        }
    }
    Outcome::Continue
}

/// Loads a byte or a word, extended to 32 bits (gfx12).
fn load_subdword<const BYTES: u32, const SIGNED: bool>(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    let (address, room) = address(w, s);
    let address = address & !u64::from(BYTES - 1);
    let raw = if u64::from(BYTES) > room {
        0
    } else if e.can_access(w, address, BYTES, false) {
        // SAFETY: the range was checked just now, and no allocation is removed while a kernel runs.
        unsafe { if BYTES == 1 { u32::from((address as *const u8).read()) } else { u32::from((address as *const u16).read_unaligned()) } }
    } else {
        e.memory_fault(w, s, 0, address, BYTES, false);
        return Outcome::Fault;
    };
    let unused = 32 - 8 * BYTES;
    w.set_scalar(s.inst.dst, if SIGNED { ((raw << unused) as i32 >> unused) as u32 } else { raw });
    Outcome::Continue
}

/// `s_get_waveid_in_workgroup`.
fn wave_id(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    w.set_scalar(s.inst.dst, w.index);
    Outcome::Continue
}

fn store(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    let (address, room) = address(w, s);
    let address = address & !3;
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
    let Some((op, bytes)) = operation(s) else { return Outcome::Fault };
    let (address, room) = address(w, s);
    let address = address & !3;
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
    w.set_scalar64(s.inst.dst, super::salu::cycles(e));
    Outcome::Continue
}

/// `s_memrealtime`: the constant 100 MHz clock.
fn real_time(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    w.set_scalar64(s.inst.dst, super::salu::real_time(e));
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
        "s_get_waveid_in_workgroup" => wave_id,
        "s_load_u8" | "s_buffer_load_u8" => load_subdword::<1, false>,
        "s_load_i8" | "s_buffer_load_i8" => load_subdword::<1, true>,
        "s_load_u16" | "s_buffer_load_u16" => load_subdword::<2, false>,
        "s_load_i16" | "s_buffer_load_i16" => load_subdword::<2, true>,
        _ if name.starts_with("s_load_dword") || name.starts_with("s_buffer_load_dword") => load,
        _ if name.starts_with("s_store_dword") || name.starts_with("s_buffer_store_dword") => store,
        _ if name.starts_with("s_dcache_") || name.contains("_prefetch_") => nop,
        _ => return None,
    })
}
