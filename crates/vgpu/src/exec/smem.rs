//! Scalar memory.

use super::code::{Handler, Step};
use super::vmem::{atomic_of, exchange};
use super::wave::Wave;
use super::{Env, Flow};
use crate::isa::{Field, flag, operand};

/// The address, and how many bytes from there a buffer's bounds allow.
fn address(w: &Wave, s: &Step) -> (u64, u64) {
    let inst = &s.inst;
    let register = if inst.offset == operand::NONE { 0 } else { u64::from(w.scalar(inst.offset)) };
    let offset = register.wrapping_add_signed(i64::from(inst.imm));
    if inst.row.registers(Field::Base) == 4 {
        let (w0, w1, records) = (w.scalar(inst.base), w.scalar(inst.base + 1), u64::from(w.scalar(inst.base + 2)));
        let base = u64::from(w0) | (u64::from(w1) & 0xffff) << 32;
        let stride = u64::from(w1) >> 16 & 0x3fff;
        let size = if stride == 0 { records } else { records * stride };
        return (base.wrapping_add(offset) & !3, size.saturating_sub(offset));
    }
    (w.pair(inst.base).wrapping_add(offset) & !3, u64::MAX)
}

unsafe fn load(w: &mut Wave, s: &Step, e: &mut Env) -> Flow {
    let (address, room) = address(w, s);
    let words = u32::from(s.inst.row.registers(Field::Dst));
    for n in 0..words {
        let at = address + 4 * u64::from(n);
        let value = if 4 * u64::from(n) + 4 > room {
            0
        } else if e.reachable(w, at, 4, false) {
            // SAFETY: the range was checked just now; it stays while the kernel runs.
            unsafe { (at as *const u32).read_unaligned() }
        } else {
            e.bad_access(w, s, 0, at, 4, false);
            return Flow::Fault;
        };
        w.set_scalar(s.inst.dst + n as u16, value);
    }
    Flow::Next
}

unsafe fn store(w: &mut Wave, s: &Step, e: &mut Env) -> Flow {
    let (address, room) = address(w, s);
    for n in 0..u32::from(s.inst.row.registers(Field::Dst)) {
        let at = address + 4 * u64::from(n);
        if 4 * u64::from(n) + 4 > room {
            break;
        }
        if !e.reachable(w, at, 4, true) {
            e.bad_access(w, s, 0, at, 4, true);
            return Flow::Fault;
        }
        let value = w.scalar(s.inst.dst + n as u16);
        // SAFETY: the range was checked just now; it stays while the kernel runs.
        unsafe { (at as *mut u32).write_unaligned(value) };
    }
    Flow::Next
}

unsafe fn atomic(w: &mut Wave, s: &Step, e: &mut Env) -> Flow {
    let Some((op, bytes)) = atomic_of(s.inst.row.name) else { return Flow::Fault };
    let (address, room) = address(w, s);
    if u64::from(bytes) > room {
        return Flow::Next;
    }
    if !e.reachable(w, address, bytes, true) {
        e.bad_access(w, s, 0, address, bytes, true);
        return Flow::Fault;
    }
    if !address.is_multiple_of(u64::from(bytes)) {
        return e.misaligned(w, s, 0, address, bytes);
    }
    let value = |w: &Wave, number: u16| if bytes == 8 { w.pair(number) } else { u64::from(w.scalar(number)) };
    let (new, compare) = (value(w, s.inst.dst), value(w, s.inst.dst + (bytes / 4) as u16));
    let old = exchange(address, bytes, |old| op(old, new, compare));
    if s.inst.flags & flag::GLC != 0 {
        if bytes == 8 {
            w.set_pair(s.inst.dst, old);
        } else {
            w.set_scalar(s.inst.dst, old as u32);
        }
    }
    Flow::Next
}

/// Core cycles, at a made-up 1 GHz.
unsafe fn time(w: &mut Wave, s: &Step, e: &mut Env) -> Flow {
    let now = e.clock.elapsed().as_nanos() as u64;
    w.set_pair(s.inst.dst, now);
    Flow::Next
}

/// The constant clock of 100 MHz.
unsafe fn real_time(w: &mut Wave, s: &Step, e: &mut Env) -> Flow {
    let now = e.clock.elapsed().as_nanos() as u64 / 10;
    w.set_pair(s.inst.dst, now);
    Flow::Next
}

unsafe fn nothing(_: &mut Wave, _: &Step, _: &mut Env) -> Flow {
    Flow::Next
}

/// The instruction called `name`.
pub fn find(name: &str) -> Option<Handler> {
    if atomic_of(name).is_some() {
        return Some(atomic);
    }
    Some(match name {
        "s_memtime" => time,
        "s_memrealtime" => real_time,
        _ if name.starts_with("s_load_") || name.starts_with("s_buffer_load_") => load,
        _ if name.starts_with("s_store_") || name.starts_with("s_buffer_store_") => store,
        _ if name.starts_with("s_dcache_") => nothing,
        _ => return None,
    })
}
