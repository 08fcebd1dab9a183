//! LDS instructions, and the lane permutations that share their encoding.

use super::atomic::{self, Rmw};
use super::decoded::{Handler, Step};
use super::ops::PerRow;
use super::simd::{DwordCount, Dwords, SimdVariants, simd_variants};
use super::wave::{LANES, Lanes, Wave};
use super::{Env, Outcome, gws};
use crate::arch::Generation;
use crate::isa::{flag, operand};

/// Bytes behind the LDS of a launch that ignores accesses outside, as many as a lane accesses at once.
pub const GUARD: usize = 16;

/// Faults for accesses to the global data share, which is not implemented.
fn reject_gds(w: &Wave, s: &Step, e: &mut Env) -> Option<Outcome> {
    (s.inst.flags & flag::GDS != 0).then(|| e.unsupported(w, s, "global data share (GDS)".to_owned()))
}

/// Returns the lanes' LDS offsets, checked. `None` after a fault, or when EXEC is 0.
#[inline(always)]
fn lane_offsets(w: &Wave, s: &Step, e: &mut Env, offset: u32, bytes: u32) -> Option<Lanes> {
    let addresses = w.vgpr(s.inst.src[0]);
    let mut out = Lanes([0; LANES]);
    let mut max = 0u64;
    for lane in 0..LANES {
        // An inactive lane reads offset 0 and discards the value.
        let at = addresses.0[lane].wrapping_add(offset) & w.mask.0[lane];
        out.0[lane] = at;
        max = max.max(u64::from(at));
    }
    if w.exec == 0 {
        return None;
    }
    let size = u64::from(e.lds_size);
    if max + u64::from(bytes) <= size {
        return Some(out);
    }
    let is_outside = |at: u32| u64::from(at) + u64::from(bytes) > size;
    if e.dispatch.hardware {
        // Lanes outside access the bytes behind the LDS, which are 0 before each access.
        e.lds[size as usize..].fill(0);
        for at in out.0.iter_mut().filter(|at| is_outside(**at)) {
            *at = e.lds_size;
        }
        return Some(out);
    }
    let lane = (0..LANES).find(|&lane| w.exec >> lane & 1 != 0 && is_outside(out.0[lane])).unwrap_or(0);
    e.lds_fault(w, s, lane, u64::from(out.0[lane]), bytes);
    None
}

/// The outcome after [`lane_offsets`] returned `None`.
fn skip_or_fault(e: &Env) -> Outcome {
    if e.fault.is_some() { Outcome::Fault } else { Outcome::Continue }
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

/// Reads a dword of each lane at its offset plus `offset`.
///
/// # Safety
/// `at` must come from [`lane_offsets`] for this LDS, with at least `offset + 4` bytes.
#[inline(always)]
unsafe fn gather(lds: &[u8], at: &Lanes, offset: u32) -> Lanes {
    let mut out = Lanes([0; LANES]);
    let base = lds.as_ptr();
    for lane in 0..LANES {
        // SAFETY: `lane_offsets` checked every lane's offset with the size of the access, including offset 0 of inactive lanes.
        out.0[lane] = unsafe { base.add((at.0[lane] + offset) as usize).cast::<u32>().read_unaligned() };
    }
    out
}

/// Writes a dword of each active lane at its offset plus `offset`.
///
/// # Safety
/// As for [`gather`].
#[inline(always)]
unsafe fn scatter(lds: &mut [u8], at: &Lanes, offset: u32, values: &Lanes, exec: u64) {
    let base = lds.as_mut_ptr();
    for lane in 0..LANES {
        if exec >> lane & 1 != 0 {
            // SAFETY: as in `gather`.
            unsafe { base.add((at.0[lane] + offset) as usize).cast::<u32>().write_unaligned(values.0[lane]) };
        }
    }
}

simd_variants!(reads, read, DwordCount);

/// Reads dwords at one offset.
#[inline(always)]
fn read<C: DwordCount>(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    if let Some(outcome) = reject_gds(w, s, e) {
        return outcome;
    }
    let Some(at) = lane_offsets(w, s, e, s.inst.imm as u32, 4 * C::N as u32) else { return skip_or_fault(e) };
    for n in 0..C::N {
        // SAFETY: `lane_offsets` checked the offsets with the size of the access.
        let values = unsafe { gather(e.lds, &at, 4 * n as u32) };
        w.write_vgpr(s.inst.dst + n as u16, &values);
    }
    Outcome::Continue
}

simd_variants!(writes, write, DwordCount);

/// Writes dwords at one offset.
#[inline(always)]
fn write<C: DwordCount>(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    if let Some(outcome) = reject_gds(w, s, e) {
        return outcome;
    }
    let Some(at) = lane_offsets(w, s, e, s.inst.imm as u32, 4 * C::N as u32) else { return skip_or_fault(e) };
    for n in 0..C::N {
        // SAFETY: `lane_offsets` checked the offsets with the size of the access.
        unsafe { scatter(e.lds, &at, 4 * n as u32, w.vgpr(s.inst.src[1] + n as u16), w.exec) };
    }
    Outcome::Continue
}

/// Returns the two offsets of a paired access, in units of `unit` bytes.
fn offsets(s: &Step, unit: u32) -> (u32, u32) {
    ((s.inst.imm as u32 & 0xff) * unit, (s.inst.imm as u32 >> 8 & 0xff) * unit)
}

/// Returns the bytes of an offset unit of a paired access.
fn offset_unit(s: &Step, words: u32) -> u32 {
    4 * words * if s.inst.desc.semantics.contains("st64") { 64 } else { 1 }
}

simd_variants!(paired_reads, read2, DwordCount);

/// Reads dwords at each of two offsets.
#[inline(always)]
fn read2<C: DwordCount>(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    if let Some(outcome) = reject_gds(w, s, e) {
        return outcome;
    }
    let (first, second) = offsets(s, offset_unit(s, C::N as u32));
    let bytes = 4 * C::N as u32;
    let Some(near) = lane_offsets(w, s, e, first, bytes) else { return skip_or_fault(e) };
    let Some(far) = lane_offsets(w, s, e, second, bytes) else { return skip_or_fault(e) };
    // The destination may overlap the address register: both offsets are computed before anything is written.
    for n in 0..C::N {
        // SAFETY: `lane_offsets` checked the offsets with the size of the access.
        let values = unsafe { gather(e.lds, &near, 4 * n as u32) };
        w.write_vgpr(s.inst.dst + n as u16, &values);
    }
    for n in 0..C::N {
        // SAFETY: `lane_offsets` checked the offsets with the size of the access.
        let values = unsafe { gather(e.lds, &far, 4 * n as u32) };
        w.write_vgpr(s.inst.dst + (C::N + n) as u16, &values);
    }
    Outcome::Continue
}

simd_variants!(paired_writes, write2, DwordCount);

/// Writes dwords at each of two offsets.
#[inline(always)]
fn write2<C: DwordCount>(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    if let Some(outcome) = reject_gds(w, s, e) {
        return outcome;
    }
    let (first, second) = offsets(s, offset_unit(s, C::N as u32));
    let bytes = 4 * C::N as u32;
    let Some(near) = lane_offsets(w, s, e, first, bytes) else { return skip_or_fault(e) };
    let Some(far) = lane_offsets(w, s, e, second, bytes) else { return skip_or_fault(e) };
    for (at, from) in [(near, s.inst.src[1]), (far, s.inst.src[2])] {
        for n in 0..C::N {
            // SAFETY: `lane_offsets` checked the offsets with the size of the access.
            unsafe { scatter(e.lds, &at, 4 * n as u32, w.vgpr(from + n as u16), w.exec) };
        }
    }
    Outcome::Continue
}

/// Reads bytes or words into one half of a register, or all of it (`None`).
fn read_subdword(w: &mut Wave, s: &Step, e: &mut Env, bytes: u32, signed: bool, half: Option<u32>) -> Outcome {
    if let Some(outcome) = reject_gds(w, s, e) {
        return outcome;
    }
    let Some(at) = lane_offsets(w, s, e, s.inst.imm as u32, bytes) else { return skip_or_fault(e) };
    let mut out = *w.vgpr(s.inst.dst);
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
    w.write_vgpr(s.inst.dst, &out);
    Outcome::Continue
}

fn write_subdword(w: &mut Wave, s: &Step, e: &mut Env, bytes: u32, high: bool) -> Outcome {
    if let Some(outcome) = reject_gds(w, s, e) {
        return outcome;
    }
    let Some(at) = lane_offsets(w, s, e, s.inst.imm as u32, bytes) else { return skip_or_fault(e) };
    for lane in 0..LANES {
        if w.exec >> lane & 1 != 0 {
            let value = w.vgpr(s.inst.src[1]).0[lane] >> if high { 16 } else { 0 };
            let at = at.0[lane] as usize;
            e.lds[at..at + bytes as usize].copy_from_slice(&value.to_le_bytes()[..bytes as usize]);
        }
    }
    Outcome::Continue
}

macro_rules! subdword {
    ($($name:ident: $f:ident($($arg:expr),*);)*) => {$(
        fn $name(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
            $f(w, s, e, $($arg),*)
        }
    )*};
}

subdword! {
    read_i8: read_subdword(1, true, None);
    read_u8: read_subdword(1, false, None);
    read_i16: read_subdword(2, true, None);
    read_u16: read_subdword(2, false, None);
    read_u8_low: read_subdword(1, false, Some(0));
    read_u8_high: read_subdword(1, false, Some(1));
    read_i8_low: read_subdword(1, true, Some(0));
    read_i8_high: read_subdword(1, true, Some(1));
    read_u16_low: read_subdword(2, false, Some(0));
    read_u16_high: read_subdword(2, false, Some(1));
    write_b8: write_subdword(1, false);
    write_b16: write_subdword(2, false);
    write_b8_high: write_subdword(1, true);
    write_b16_high: write_subdword(2, true);
}

/// An atomic.
#[derive(Clone, Copy)]
pub struct Atomic {
    pub op: Rmw,
    pub bytes: u32,
    /// Whether it returns the old value.
    pub returns: bool,
    /// Whether it compares with the first operand and writes the second.
    pub compares: bool,
}

/// Returns the atomic that an instruction is.
pub fn atomic_of(s: &Step) -> Option<Atomic> {
    static KNOWN: PerRow<Atomic> = PerRow::new();
    KNOWN.get(s.inst.desc, |row| find_atomic(row.semantics)).copied()
}

/// Returns the atomic of a mnemonic such as `ds_add_rtn_u32`.
fn find_atomic(name: &str) -> Option<Atomic> {
    let rest = name.strip_prefix("ds_")?;
    let (returns, compares) = (rest.contains("_rtn"), rest.contains("cmpst_"));
    let rest = rest.replace("_rtn", "");
    if let Some(op) = rest.starts_with("pk_add").then(|| atomic::find(&rest, 4)).flatten() {
        return Some(Atomic { op, bytes: 4, returns, compares });
    }
    let (op, ty) = rest.rsplit_once('_')?;
    let bytes = if ty.ends_with("64") { 8 } else { 4 };
    let key = match (op, &ty[..1]) {
        ("min", "i") => "smin".to_owned(),
        ("max", "i") => "smax".to_owned(),
        ("min", "u") => "umin".to_owned(),
        ("max", "u") => "umax".to_owned(),
        ("cmpstore", "f") => format!("cmpst_{ty}"),
        ("cmpstore", _) => "cmpst".to_owned(),
        (_, "f") => rest.clone(),
        _ => op.to_owned(),
    };
    Some(Atomic { op: atomic::find(&key, bytes)?, bytes, returns, compares })
}

/// Atomics, lane by lane.
fn atomic_handler(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    if let Some(outcome) = reject_gds(w, s, e) {
        return outcome;
    }
    let Some(Atomic { op, bytes, returns, compares }) = atomic_of(s) else { return Outcome::Fault };
    let Some(at) = lane_offsets(w, s, e, s.inst.imm as u32, bytes) else { return skip_or_fault(e) };
    let mut old = [Lanes([0; LANES]), Lanes([0; LANES])];
    for lane in 0..LANES {
        // A lane outside changes nothing and gets 0.
        if w.exec >> lane & 1 == 0 || at.0[lane] == e.lds_size {
            continue;
        }
        let value = |number: u16| {
            let high = if bytes == 8 { w.vgpr(number + 1).0[lane] } else { 0 };
            u64::from(w.vgpr(number).0[lane]) | u64::from(high) << 32
        };
        let (first, second) = (value(s.inst.src[1]), value(s.inst.src[2]));
        let (data, other) = if compares { (second, first) } else { (first, second) };
        let offset = at.0[lane];
        let high = if bytes == 8 { word(e.lds, offset + 4) } else { 0 };
        let before = u64::from(word(e.lds, offset)) | u64::from(high) << 32;
        let after = op(before, data, other);
        set_word(e.lds, offset, after as u32);
        if bytes == 8 {
            set_word(e.lds, offset + 4, (after >> 32) as u32);
        }
        old[0].0[lane] = before as u32;
        old[1].0[lane] = (before >> 32) as u32;
    }
    if returns {
        for n in 0..(bytes / 4) as u16 {
            w.write_vgpr(s.inst.dst + n, &old[usize::from(n)]);
        }
    }
    Outcome::Continue
}

/// `ds_wrxchg2_rtn_*`: exchanges at two offsets.
fn exchange2<const WORDS: usize>(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    // Lane by lane: an offset that two lanes share changes twice.
    let (first, second) = offsets(s, offset_unit(s, WORDS as u32));
    let mut out = [Lanes([0; LANES]); 4];
    for (which, offset) in [first, second].into_iter().enumerate() {
        let Some(at) = lane_offsets(w, s, e, offset, 4 * WORDS as u32) else { return skip_or_fault(e) };
        for lane in 0..LANES {
            if w.exec >> lane & 1 != 0 && at.0[lane] != e.lds_size {
                for n in 0..WORDS {
                    let offset = at.0[lane] + 4 * n as u32;
                    out[which * WORDS + n].0[lane] = word(e.lds, offset);
                    set_word(e.lds, offset, w.vgpr(s.inst.src[1 + which] + n as u16).0[lane]);
                }
            }
        }
    }
    for (n, register) in out.iter().take(2 * WORDS).enumerate() {
        w.write_vgpr(s.inst.dst + n as u16, register);
    }
    Outcome::Continue
}

/// `ds_condxchg32_rtn_b64`: exchanges each half whose data has its top bit set.
fn conditional_exchange(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    let Some(at) = lane_offsets(w, s, e, s.inst.imm as u32 & !7, 8) else { return skip_or_fault(e) };
    let mut out = [Lanes([0; LANES]); 2];
    for lane in 0..LANES {
        if w.exec >> lane & 1 != 0 && at.0[lane] != e.lds_size {
            for n in 0..2u16 {
                let offset = at.0[lane] + 4 * u32::from(n);
                let data = w.vgpr(s.inst.src[1] + n).0[lane];
                out[usize::from(n)].0[lane] = word(e.lds, offset);
                if data >> 31 != 0 {
                    set_word(e.lds, offset, data & 0x7fff_ffff);
                }
            }
        }
    }
    w.write_vgpr(s.inst.dst, &out[0]);
    w.write_vgpr(s.inst.dst + 1, &out[1]);
    Outcome::Continue
}

/// Adds or subtracts the number of active lanes to or from a counter, and returns the old value to all of them.
fn append_or_consume(w: &mut Wave, s: &Step, e: &mut Env, change: fn(u32, u32) -> u32) -> Outcome {
    let at = (w.sgprs[usize::from(operand::M0)] >> 16).wrapping_add(s.inst.imm as u32) & 0xfffc;
    if at + 4 > e.lds_size && !e.dispatch.hardware {
        e.lds_fault(w, s, w.first_lane(), u64::from(at), 4);
        return Outcome::Fault;
    }
    let lds = &mut e.lds[..e.lds_size as usize];
    let old = word(lds, at);
    set_word(lds, at, change(old, w.exec.count_ones()));
    w.write_vgpr(s.inst.dst, &Lanes([old; LANES]));
    Outcome::Continue
}

fn append(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    append_or_consume(w, s, e, u32::wrapping_add)
}

fn consume(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    append_or_consume(w, s, e, u32::wrapping_sub)
}

/// Returns lane 0's offset of `ds_read_addtid` and `ds_write_addtid`.
fn addtid_base(w: &Wave, s: &Step, e: &mut Env) -> Option<u32> {
    let base = (w.sgprs[usize::from(operand::M0)] & 0xffff).wrapping_add(s.inst.imm as u32);
    if base as usize + 4 * w.lanes() > e.lds_size as usize && !e.dispatch.hardware {
        e.lds_fault(w, s, 0, u64::from(base), 4 * w.lanes() as u32);
        return None;
    }
    Some(base)
}

fn read_addtid(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    let Some(base) = addtid_base(w, s, e) else { return Outcome::Fault };
    let mut out = Lanes([0; LANES]);
    for lane in 0..w.lanes() {
        out.0[lane] = word(&e.lds[..e.lds_size as usize], base + 4 * lane as u32);
    }
    w.write_vgpr(s.inst.dst, &out);
    Outcome::Continue
}

fn write_addtid(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    let Some(base) = addtid_base(w, s, e) else { return Outcome::Fault };
    for lane in 0..LANES {
        if w.exec >> lane & 1 != 0 {
            set_word(&mut e.lds[..e.lds_size as usize], base + 4 * lane as u32, w.vgpr(s.inst.src[1]).0[lane]);
        }
    }
    Outcome::Continue
}

/// Returns the lane that an address of a permutation names: any lane, or on gfx10 and gfx11 one of the same 32.
#[inline(always)]
fn permuted_lane(w: &Wave, e: &Env, lane: usize, address: u32) -> usize {
    let number = (address / 4) as usize & (w.lanes() - 1);
    match e.code.arch.generation() {
        Generation::Gfx10 | Generation::Gfx11 => lane & !31 | number & 31,
        Generation::Gfx9 | Generation::Gfx12 => number,
    }
}

/// `ds_permute_b32`: each active lane sends its value; the highest sender wins.
fn permute(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    let (addresses, data) = (w.vgpr(s.inst.src[0]), w.vgpr(s.inst.src[1]));
    let mut out = Lanes([0; LANES]);
    for lane in 0..LANES {
        if w.exec >> lane & 1 != 0 {
            let to = permuted_lane(w, e, lane, addresses.0[lane].wrapping_add(s.inst.imm as u32));
            out.0[to] = data.0[lane];
        }
    }
    w.write_vgpr(s.inst.dst, &out);
    Outcome::Continue
}

/// `ds_bpermute_b32`: each lane fetches a value; inactive lanes provide 0.
fn bpermute(w: &mut Wave, s: &Step, e: &mut Env) -> Outcome {
    let addresses = w.vgpr(s.inst.src[0]);
    let (mut data, mut out) = (*w.vgpr(s.inst.src[1]), Lanes([0; LANES]));
    for lane in 0..LANES {
        data.0[lane] &= w.mask.0[lane];
    }
    for lane in 0..LANES {
        let from = permuted_lane(w, e, lane, addresses.0[lane].wrapping_add(s.inst.imm as u32));
        out.0[lane] = data.0[from % LANES];
    }
    w.write_vgpr(s.inst.dst, &out);
    Outcome::Continue
}

/// Returns the lane that `ds_swizzle_b32` reads for `lane`.
fn swizzled(pattern: u32, lane: usize) -> usize {
    let lane32 = lane as u32;
    if pattern >= 0xe000 {
        // FFT mode: the lane bits reversed, except those that the mask keeps.
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

fn swizzle(w: &mut Wave, s: &Step, _: &mut Env) -> Outcome {
    let data = w.vgpr(s.inst.src[0]);
    let mut out = Lanes([0; LANES]);
    for lane in 0..LANES {
        let from = swizzled(s.inst.imm as u32, lane);
        out.0[lane] = data.0[from] & w.mask.0[from];
    }
    w.write_vgpr(s.inst.dst, &out);
    Outcome::Continue
}

fn nop(_: &mut Wave, _: &Step, _: &mut Env) -> Outcome {
    Outcome::Continue
}

/// Returns the handlers of the instruction called `name`.
pub fn find(name: &str) -> Option<SimdVariants> {
    if find_atomic(name).is_some() {
        return Some([atomic_handler; 3]);
    }
    let handler: Handler = match name {
        "ds_nop" => nop,
        // The barrier instruction has the count.
        "ds_gws_init" => nop,
        "ds_gws_barrier" => gws::barrier,
        "ds_read_b32" => return Some(reads::<Dwords<1>>()),
        "ds_read_b64" => return Some(reads::<Dwords<2>>()),
        "ds_read_b96" => return Some(reads::<Dwords<3>>()),
        "ds_read_b128" => return Some(reads::<Dwords<4>>()),
        "ds_write_b32" => return Some(writes::<Dwords<1>>()),
        "ds_write_b64" => return Some(writes::<Dwords<2>>()),
        "ds_write_b96" => return Some(writes::<Dwords<3>>()),
        "ds_write_b128" => return Some(writes::<Dwords<4>>()),
        "ds_read2_b32" | "ds_read2st64_b32" => return Some(paired_reads::<Dwords<1>>()),
        "ds_read2_b64" | "ds_read2st64_b64" => return Some(paired_reads::<Dwords<2>>()),
        "ds_write2_b32" | "ds_write2st64_b32" => return Some(paired_writes::<Dwords<1>>()),
        "ds_write2_b64" | "ds_write2st64_b64" => return Some(paired_writes::<Dwords<2>>()),
        "ds_wrxchg2_rtn_b32" | "ds_wrxchg2st64_rtn_b32" => exchange2::<1>,
        "ds_wrxchg2_rtn_b64" | "ds_wrxchg2st64_rtn_b64" => exchange2::<2>,
        "ds_condxchg32_rtn_b64" => conditional_exchange,
        "ds_append" => append,
        "ds_consume" => consume,
        "ds_read_addtid_b32" => read_addtid,
        "ds_write_addtid_b32" => write_addtid,
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
        "ds_bpermute_b32" => bpermute,
        "ds_swizzle_b32" => swizzle,
        _ => return None,
    };
    Some([handler; 3])
}
