//! LDS: the group's shared memory, and the lane permutations that share its instructions.

use super::atomic::{self, Rmw};
use super::code::{Handler, Step};
use super::level::{Count, Forms, Words, leveled};
use super::wave::{LANES, Lanes, Wave};
use super::{Env, Flow, gws};
use crate::isa::{flag, operand};

/// Whether the access is to shared memory; the global data share is not there.
fn refuse_gds(w: &Wave, s: &Step, e: &mut Env) -> Option<Flow> {
    (s.inst.flags & flag::GDS != 0).then(|| e.unsupported(w, s, "the global data share is not there".to_owned()))
}

/// Checks that all active lanes' accesses lie in the group's memory, and answers their places.
#[inline(always)]
fn places(w: &Wave, s: &Step, e: &mut Env, offset: u32, bytes: u32) -> Option<Lanes> {
    let addresses = w.reg(s.inst.src[0]);
    let mut out = Lanes([0; LANES]);
    let mut most = 0u64;
    for lane in 0..LANES {
        // An inactive lane reads place 0 and throws the value away.
        let at = addresses.0[lane].wrapping_add(offset) & w.mask.0[lane];
        out.0[lane] = at;
        most = most.max(u64::from(at));
    }
    if w.exec == 0 {
        return None;
    }
    if most + u64::from(bytes) <= e.lds.len() as u64 {
        return Some(out);
    }
    let lane = (0..LANES).find(|&lane| w.exec >> lane & 1 != 0 && u64::from(out.0[lane]) + u64::from(bytes) > e.lds.len() as u64);
    let lane = lane.unwrap_or(0);
    e.bad_shared(w, s, lane, u64::from(out.0[lane]), bytes);
    None
}

/// After [`places`] gave nothing: a fault, or no lane active.
fn nowhere(e: &Env) -> Flow {
    if e.fault.is_some() { Flow::Fault } else { Flow::Next }
}

fn word(lds: &[u8], at: u32) -> u32 {
    let mut bytes = [0; 4];
    if let Some(from) = lds.get(at as usize..at as usize + 4) {
        bytes.copy_from_slice(from);
    }
    u32::from_le_bytes(bytes)
}

fn set_word(lds: &mut [u8], at: u32, value: u32) {
    if let Some(to) = lds.get_mut(at as usize..at as usize + 4) {
        to.copy_from_slice(&value.to_le_bytes());
    }
}

/// All lanes' words at the places that [`places`] gave, `offset` bytes further on.
#[inline(always)]
fn gather(lds: &[u8], at: &Lanes, offset: u32) -> Lanes {
    let mut out = Lanes([0; LANES]);
    let base = lds.as_ptr();
    for lane in 0..LANES {
        // SAFETY: `places` checked every lane's place together with its size, inactive lanes' place 0 included.
        out.0[lane] = unsafe { base.add((at.0[lane] + offset) as usize).cast::<u32>().read_unaligned() };
    }
    out
}

/// The active lanes' words to those places.
#[inline(always)]
fn scatter(lds: &mut [u8], at: &Lanes, offset: u32, values: &Lanes, exec: u64) {
    let base = lds.as_mut_ptr();
    for lane in 0..LANES {
        if exec >> lane & 1 != 0 {
            // SAFETY: as in `gather`.
            unsafe { base.add((at.0[lane] + offset) as usize).cast::<u32>().write_unaligned(values.0[lane]) };
        }
    }
}

leveled!(reads, read, Words);

/// Reads registers at one place.
#[inline(always)]
fn read<C: Words>(w: &mut Wave, s: &Step, e: &mut Env) -> Flow {
    if let Some(flow) = refuse_gds(w, s, e) {
        return flow;
    }
    let Some(at) = places(w, s, e, s.inst.imm as u32, 4 * C::N as u32) else { return nowhere(e) };
    for n in 0..C::N {
        let values = gather(e.lds, &at, 4 * n as u32);
        w.write(s.inst.dst + n as u16, &values);
    }
    Flow::Next
}

leveled!(writes, write, Words);

/// Writes registers at one place.
#[inline(always)]
fn write<C: Words>(w: &mut Wave, s: &Step, e: &mut Env) -> Flow {
    if let Some(flow) = refuse_gds(w, s, e) {
        return flow;
    }
    let Some(at) = places(w, s, e, s.inst.imm as u32, 4 * C::N as u32) else { return nowhere(e) };
    for n in 0..C::N {
        scatter(e.lds, &at, 4 * n as u32, w.reg(s.inst.src[1] + n as u16), w.exec);
    }
    Flow::Next
}

/// The two offsets of a paired access, in units of `unit` bytes.
fn offsets(s: &Step, unit: u32) -> (u32, u32) {
    ((s.inst.imm as u32 & 0xff) * unit, (s.inst.imm as u32 >> 8 & 0xff) * unit)
}

/// Bytes between units of a paired access.
fn unit(s: &Step, words: u32) -> u32 {
    4 * words * if s.inst.row.name.contains("st64") { 64 } else { 1 }
}

leveled!(paired_reads, read2, Words);

/// Reads registers at each of two places.
#[inline(always)]
fn read2<C: Words>(w: &mut Wave, s: &Step, e: &mut Env) -> Flow {
    if let Some(flow) = refuse_gds(w, s, e) {
        return flow;
    }
    let (first, second) = offsets(s, unit(s, C::N as u32));
    let bytes = 4 * C::N as u32;
    let Some(near) = places(w, s, e, first, bytes) else { return nowhere(e) };
    let Some(far) = places(w, s, e, second, bytes) else { return nowhere(e) };
    // The destination may be the address: both are read before anything is written.
    for n in 0..C::N {
        let values = gather(e.lds, &near, 4 * n as u32);
        w.write(s.inst.dst + n as u16, &values);
    }
    for n in 0..C::N {
        let values = gather(e.lds, &far, 4 * n as u32);
        w.write(s.inst.dst + (C::N + n) as u16, &values);
    }
    Flow::Next
}

leveled!(paired_writes, write2, Words);

/// Writes registers at each of two places.
#[inline(always)]
fn write2<C: Words>(w: &mut Wave, s: &Step, e: &mut Env) -> Flow {
    if let Some(flow) = refuse_gds(w, s, e) {
        return flow;
    }
    let (first, second) = offsets(s, unit(s, C::N as u32));
    let bytes = 4 * C::N as u32;
    let Some(near) = places(w, s, e, first, bytes) else { return nowhere(e) };
    let Some(far) = places(w, s, e, second, bytes) else { return nowhere(e) };
    for (at, from) in [(near, s.inst.src[1]), (far, s.inst.src[2])] {
        for n in 0..C::N {
            scatter(e.lds, &at, 4 * n as u32, w.reg(from + n as u16), w.exec);
        }
    }
    Flow::Next
}

/// Bytes and words in: size, sign, and the half they arrive in (`None`: the whole register).
fn read_part(w: &mut Wave, s: &Step, e: &mut Env, bytes: u32, signed: bool, half: Option<u32>) -> Flow {
    if let Some(flow) = refuse_gds(w, s, e) {
        return flow;
    }
    let Some(at) = places(w, s, e, s.inst.imm as u32, bytes) else { return nowhere(e) };
    let mut out = *w.reg(s.inst.dst);
    for lane in 0..LANES {
        let at = at.0[lane] as usize;
        let raw =
            e.lds.get(at..at + bytes as usize).map_or(0, |from| from.iter().rev().fold(0u32, |value, byte| value << 8 | u32::from(*byte)));
        let value = match (bytes, signed) {
            (1, true) => raw as u8 as i8 as i32 as u32,
            (2, true) => raw as u16 as i16 as i32 as u32,
            _ => raw,
        };
        out.0[lane] = match half {
            None => value,
            Some(0) => out.0[lane] & 0xffff_0000 | value & 0xffff,
            Some(_) => out.0[lane] & 0xffff | value << 16,
        };
    }
    w.write(s.inst.dst, &out);
    Flow::Next
}

fn write_part(w: &mut Wave, s: &Step, e: &mut Env, bytes: u32, high: bool) -> Flow {
    if let Some(flow) = refuse_gds(w, s, e) {
        return flow;
    }
    let Some(at) = places(w, s, e, s.inst.imm as u32, bytes) else { return nowhere(e) };
    for lane in 0..LANES {
        if w.exec >> lane & 1 != 0 {
            let value = w.reg(s.inst.src[1]).0[lane] >> if high { 16 } else { 0 };
            let at = at.0[lane] as usize;
            e.lds[at..at + bytes as usize].copy_from_slice(&value.to_le_bytes()[..bytes as usize]);
        }
    }
    Flow::Next
}

macro_rules! parts {
    ($($name:ident: $f:ident($($arg:expr),*);)*) => {$(
        unsafe fn $name(w: &mut Wave, s: &Step, e: &mut Env) -> Flow {
            $f(w, s, e, $($arg),*)
        }
    )*};
}

parts! {
    read_i8: read_part(1, true, None);
    read_u8: read_part(1, false, None);
    read_i16: read_part(2, true, None);
    read_u16: read_part(2, false, None);
    read_u8_low: read_part(1, false, Some(0));
    read_u8_high: read_part(1, false, Some(1));
    read_i8_low: read_part(1, true, Some(0));
    read_i8_high: read_part(1, true, Some(1));
    read_u16_low: read_part(2, false, Some(0));
    read_u16_high: read_part(2, false, Some(1));
    write_b8: write_part(1, false);
    write_b16: write_part(2, false);
    write_b8_high: write_part(1, true);
    write_b16_high: write_part(2, true);
}

/// The operation of a mnemonic, its bytes, and whether it returns the old value: `ds_add_rtn_u32`.
fn atomic_of(name: &str) -> Option<(Rmw, u32, bool)> {
    let rest = name.strip_prefix("ds_")?;
    let returns = rest.contains("_rtn");
    let rest = rest.replace("_rtn", "");
    if let Some(op) = rest.starts_with("pk_add").then(|| atomic::find(&rest, 4)).flatten() {
        return Some((op, 4, returns));
    }
    let (op, ty) = rest.rsplit_once('_')?;
    let bytes = if ty.ends_with("64") { 8 } else { 4 };
    let key = match (op, &ty[..1]) {
        ("min", "i") => "smin".to_owned(),
        ("max", "i") => "smax".to_owned(),
        ("min", "u") => "umin".to_owned(),
        ("max", "u") => "umax".to_owned(),
        (_, "f") => rest.clone(),
        _ => op.to_owned(),
    };
    Some((atomic::find(&key, bytes)?, bytes, returns))
}

/// Atomics, one lane after the other.
unsafe fn atomic_handler(w: &mut Wave, s: &Step, e: &mut Env) -> Flow {
    if let Some(flow) = refuse_gds(w, s, e) {
        return flow;
    }
    let Some((op, bytes, returns)) = atomic_of(s.inst.row.name) else { return Flow::Fault };
    let Some(at) = places(w, s, e, s.inst.imm as u32, bytes) else { return nowhere(e) };
    let mut old = [Lanes([0; LANES]), Lanes([0; LANES])];
    // These compare with the first operand and write the second.
    let compares = s.inst.row.name.contains("cmpst");
    for lane in 0..LANES {
        if w.exec >> lane & 1 == 0 {
            continue;
        }
        let value = |number: u16| {
            let high = if bytes == 8 { w.reg(number + 1).0[lane] } else { 0 };
            u64::from(w.reg(number).0[lane]) | u64::from(high) << 32
        };
        let (first, second) = (value(s.inst.src[1]), value(s.inst.src[2]));
        let (data, other) = if compares { (second, first) } else { (first, second) };
        let place = at.0[lane];
        let high = if bytes == 8 { word(e.lds, place + 4) } else { 0 };
        let before = u64::from(word(e.lds, place)) | u64::from(high) << 32;
        let after = op(before, data, other);
        set_word(e.lds, place, after as u32);
        if bytes == 8 {
            set_word(e.lds, place + 4, (after >> 32) as u32);
        }
        old[0].0[lane] = before as u32;
        old[1].0[lane] = (before >> 32) as u32;
    }
    if returns {
        for n in 0..(bytes / 4) as u16 {
            w.write(s.inst.dst + n, &old[usize::from(n)]);
        }
    }
    Flow::Next
}

/// `ds_wrxchg2_rtn_*`: exchanges two places.
unsafe fn exchange2<const WORDS: usize>(w: &mut Wave, s: &Step, e: &mut Env) -> Flow {
    // Lanes go one after the other: a place that two of them touch changes twice.
    let (first, second) = offsets(s, unit(s, WORDS as u32));
    let mut out = [Lanes([0; LANES]); 4];
    for (which, offset) in [first, second].into_iter().enumerate() {
        let Some(at) = places(w, s, e, offset, 4 * WORDS as u32) else { return nowhere(e) };
        for lane in 0..LANES {
            if w.exec >> lane & 1 != 0 {
                for n in 0..WORDS {
                    let place = at.0[lane] + 4 * n as u32;
                    out[which * WORDS + n].0[lane] = word(e.lds, place);
                    set_word(e.lds, place, w.reg(s.inst.src[1 + which] + n as u16).0[lane]);
                }
            }
        }
    }
    for (n, register) in out.iter().take(2 * WORDS).enumerate() {
        w.write(s.inst.dst + n as u16, register);
    }
    Flow::Next
}

/// `ds_condxchg32_rtn_b64`: each half is exchanged where its data's top bit says so.
unsafe fn conditional_exchange(w: &mut Wave, s: &Step, e: &mut Env) -> Flow {
    let Some(at) = places(w, s, e, s.inst.imm as u32 & !7, 8) else { return nowhere(e) };
    let mut out = [Lanes([0; LANES]); 2];
    for lane in 0..LANES {
        if w.exec >> lane & 1 != 0 {
            for n in 0..2u16 {
                let place = at.0[lane] + 4 * u32::from(n);
                let data = w.reg(s.inst.src[1] + n).0[lane];
                out[usize::from(n)].0[lane] = word(e.lds, place);
                if data >> 31 != 0 {
                    set_word(e.lds, place, data & 0x7fff_ffff);
                }
            }
        }
    }
    w.write(s.inst.dst, &out[0]);
    w.write(s.inst.dst + 1, &out[1]);
    Flow::Next
}

/// Adds the number of active lanes to a counter, or takes it away, and gives the old value to all of them.
fn count(w: &mut Wave, s: &Step, e: &mut Env, change: fn(u32, u32) -> u32) -> Flow {
    let at = (w.s[usize::from(operand::M0)] >> 16).wrapping_add(s.inst.imm as u32) & 0xfffc;
    if at as usize + 4 > e.lds.len() {
        e.bad_shared(w, s, w.first_lane(), u64::from(at), 4);
        return Flow::Fault;
    }
    let old = word(e.lds, at);
    set_word(e.lds, at, change(old, w.exec.count_ones()));
    w.write(s.inst.dst, &Lanes([old; LANES]));
    Flow::Next
}

unsafe fn append(w: &mut Wave, s: &Step, e: &mut Env) -> Flow {
    count(w, s, e, u32::wrapping_add)
}

unsafe fn consume(w: &mut Wave, s: &Step, e: &mut Env) -> Flow {
    count(w, s, e, u32::wrapping_sub)
}

/// Where `ds_read_addtid` and `ds_write_addtid` have lane 0's word.
fn by_lane(w: &Wave, s: &Step, e: &mut Env) -> Option<u32> {
    let base = (w.s[usize::from(operand::M0)] & 0xffff).wrapping_add(s.inst.imm as u32);
    if base as usize + 4 * LANES > e.lds.len() {
        e.bad_shared(w, s, 0, u64::from(base), 4 * LANES as u32);
        return None;
    }
    Some(base)
}

unsafe fn read_by_lane(w: &mut Wave, s: &Step, e: &mut Env) -> Flow {
    let Some(base) = by_lane(w, s, e) else { return Flow::Fault };
    let mut out = Lanes([0; LANES]);
    for lane in 0..LANES {
        out.0[lane] = word(e.lds, base + 4 * lane as u32);
    }
    w.write(s.inst.dst, &out);
    Flow::Next
}

unsafe fn write_by_lane(w: &mut Wave, s: &Step, e: &mut Env) -> Flow {
    let Some(base) = by_lane(w, s, e) else { return Flow::Fault };
    for lane in 0..LANES {
        if w.exec >> lane & 1 != 0 {
            set_word(e.lds, base + 4 * lane as u32, w.reg(s.inst.src[1]).0[lane]);
        }
    }
    Flow::Next
}

/// `ds_permute_b32`: each active lane sends its value; the highest sender wins.
unsafe fn permute(w: &mut Wave, s: &Step, _: &mut Env) -> Flow {
    let (addresses, data) = (w.reg(s.inst.src[0]), w.reg(s.inst.src[1]));
    let mut out = Lanes([0; LANES]);
    for lane in 0..LANES {
        if w.exec >> lane & 1 != 0 {
            let to = addresses.0[lane].wrapping_add(s.inst.imm as u32) / 4 % LANES as u32;
            out.0[to as usize] = data.0[lane];
        }
    }
    w.write(s.inst.dst, &out);
    Flow::Next
}

/// `ds_bpermute_b32`: each lane fetches a value; inactive lanes give 0.
unsafe fn backward_permute(w: &mut Wave, s: &Step, _: &mut Env) -> Flow {
    let (addresses, data) = (w.reg(s.inst.src[0]), w.reg(s.inst.src[1]));
    let mut out = Lanes([0; LANES]);
    for lane in 0..LANES {
        let from = (addresses.0[lane].wrapping_add(s.inst.imm as u32) / 4) as usize % LANES;
        out.0[lane] = data.0[from] & w.mask.0[from];
    }
    w.write(s.inst.dst, &out);
    Flow::Next
}

/// The lane that `ds_swizzle_b32` reads for `lane`.
fn swizzled(pattern: u32, lane: usize) -> usize {
    let lane32 = lane as u32;
    if pattern >= 0xe000 {
        // Bit-reversal steps of a Fourier transform: the low bits mirrored, as far as the mask leaves them.
        let mask = pattern & 0x1f;
        let reversed = (lane32 & 31).reverse_bits() >> 27;
        let from = if mask == 0x1f { lane32 & 31 } else { reversed & !mask & 31 | lane32 & mask };
        return (lane & !31) | from as usize;
    }
    if pattern >= 0xc000 {
        // Rotation within 32 lanes.
        let (amount, mask) = (pattern >> 5 & 31, pattern & 31);
        let from = if pattern >> 10 & 1 == 0 { lane32.wrapping_add(amount) } else { lane32.wrapping_sub(amount) };
        return (lane & !31) | ((lane32 & mask | from & !mask) & 31) as usize;
    }
    if pattern & 0x8000 != 0 {
        return lane & !3 | (pattern >> (2 * (lane32 & 3)) & 3) as usize;
    }
    let (and, or, xor) = (pattern & 31, pattern >> 5 & 31, pattern >> 10 & 31);
    (lane & !31) | ((lane32 & and | or) ^ xor) as usize & 31
}

unsafe fn swizzle(w: &mut Wave, s: &Step, _: &mut Env) -> Flow {
    let data = w.reg(s.inst.src[0]);
    let mut out = Lanes([0; LANES]);
    for lane in 0..LANES {
        let from = swizzled(s.inst.imm as u32, lane);
        out.0[lane] = data.0[from] & w.mask.0[from];
    }
    w.write(s.inst.dst, &out);
    Flow::Next
}

unsafe fn nothing(_: &mut Wave, _: &Step, _: &mut Env) -> Flow {
    Flow::Next
}

/// The instruction called `name`.
pub fn find(name: &str) -> Option<Forms> {
    if atomic_of(name).is_some() {
        return Some([atomic_handler; 3]);
    }
    let handler: Handler = match name {
        "ds_nop" => nothing,
        // The barrier brings its count along.
        "ds_gws_init" => nothing,
        "ds_gws_barrier" => gws::barrier,
        "ds_read_b32" => return Some(reads::<Count<1>>()),
        "ds_read_b64" => return Some(reads::<Count<2>>()),
        "ds_read_b96" => return Some(reads::<Count<3>>()),
        "ds_read_b128" => return Some(reads::<Count<4>>()),
        "ds_write_b32" => return Some(writes::<Count<1>>()),
        "ds_write_b64" => return Some(writes::<Count<2>>()),
        "ds_write_b96" => return Some(writes::<Count<3>>()),
        "ds_write_b128" => return Some(writes::<Count<4>>()),
        "ds_read2_b32" | "ds_read2st64_b32" => return Some(paired_reads::<Count<1>>()),
        "ds_read2_b64" | "ds_read2st64_b64" => return Some(paired_reads::<Count<2>>()),
        "ds_write2_b32" | "ds_write2st64_b32" => return Some(paired_writes::<Count<1>>()),
        "ds_write2_b64" | "ds_write2st64_b64" => return Some(paired_writes::<Count<2>>()),
        "ds_wrxchg2_rtn_b32" | "ds_wrxchg2st64_rtn_b32" => exchange2::<1>,
        "ds_wrxchg2_rtn_b64" | "ds_wrxchg2st64_rtn_b64" => exchange2::<2>,
        "ds_condxchg32_rtn_b64" => conditional_exchange,
        "ds_append" => append,
        "ds_consume" => consume,
        "ds_read_addtid_b32" => read_by_lane,
        "ds_write_addtid_b32" => write_by_lane,
        "ds_read_i8" => read_i8,
        "ds_read_u8" => read_u8,
        "ds_read_i16" => read_i16,
        "ds_read_u16" => read_u16,
        "ds_read_u8_d16" => read_u8_low,
        "ds_read_u8_d16_hi" => read_u8_high,
        "ds_read_i8_d16" => read_i8_low,
        "ds_read_i8_d16_hi" => read_i8_high,
        "ds_read_u16_d16" => read_u16_low,
        "ds_read_u16_d16_hi" => read_u16_high,
        "ds_write_b8" => write_b8,
        "ds_write_b16" => write_b16,
        "ds_write_b8_d16_hi" => write_b8_high,
        "ds_write_b16_d16_hi" => write_b16_high,
        "ds_permute_b32" => permute,
        "ds_bpermute_b32" => backward_permute,
        "ds_swizzle_b32" => swizzle,
        _ => return None,
    };
    Some([handler; 3])
}
